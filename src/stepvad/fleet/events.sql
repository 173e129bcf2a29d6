-- The events of a fleet in PostgreSQL 13 or newer. `stepvad fleet setup` runs this file as the owner
-- of the database; it may be run again. Messages come in any order and more than once.

CREATE SCHEMA IF NOT EXISTS stepvad;

CREATE TABLE IF NOT EXISTS stepvad.about (
    version integer NOT NULL, -- of these tables
    retention_days double precision NOT NULL CHECK (retention_days > 0)
);

-- One row an event. Without a record it is erased, or known by a mark alone: it came first.
CREATE TABLE IF NOT EXISTS stepvad.events (
    site text NOT NULL, -- from the subject, so that no site writes for another
    id text NOT NULL, -- as the site has it, as is the camera
    month date NOT NULL, -- of the start, in UTC: it never changes within an id
    camera text NOT NULL DEFAULT '',
    label text NOT NULL DEFAULT '',
    severity text NOT NULL DEFAULT '',
    start_time timestamptz NOT NULL,
    end_time timestamptz, -- null while it goes on
    top_score double precision NOT NULL DEFAULT 0,
    version bigint NOT NULL DEFAULT -1, -- counted by the site
    erased boolean NOT NULL DEFAULT false, -- whatever comes later is ignored
    record jsonb,
    changed timestamptz NOT NULL DEFAULT now(),
    mark text CHECK (mark IN ('normal', 'right')),
    marked timestamptz, -- the latest judgement, also one that took a mark back
    reviewed timestamptz, -- the latest judgement, or else the first look
    reviewed_by text NOT NULL DEFAULT '',
    explanation jsonb, -- as the site gave it to the page
    PRIMARY KEY (site, id, month)
) PARTITION BY LIST (month);
CREATE INDEX IF NOT EXISTS events_by_time ON stepvad.events (start_time, site, id);
CREATE INDEX IF NOT EXISTS events_by_camera ON stepvad.events (site, camera, start_time);
CREATE INDEX IF NOT EXISTS events_open ON stepvad.events (start_time)
    WHERE end_time IS NULL AND record IS NOT NULL;
CREATE INDEX IF NOT EXISTS events_to_review ON stepvad.events (start_time)
    WHERE reviewed IS NULL AND record IS NOT NULL;

-- Months that have no partition of their own, such as 1970 and 2099 by a wrong clock.
CREATE TABLE IF NOT EXISTS stepvad.events_other PARTITION OF stepvad.events DEFAULT;

CREATE TABLE IF NOT EXISTS stepvad.months ( -- that have, or had, a partition
    month date PRIMARY KEY,
    dropped timestamptz -- by retention; what comes late for it is expired
);

-- Messages that are no changes of events; the latest of each site are kept.
CREATE TABLE IF NOT EXISTS stepvad.refused (
    number bigint GENERATED ALWAYS AS IDENTITY,
    site text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(),
    reason text NOT NULL,
    body text NOT NULL,
    PRIMARY KEY (site, number)
);

CREATE TABLE IF NOT EXISTS stepvad.ended_sessions ( -- of the page, for all its replicas
    session text PRIMARY KEY,
    until timestamptz NOT NULL -- then it would have ended anyway
);

DROP TYPE IF EXISTS stepvad.message CASCADE; -- and what reads one, made again below
CREATE TYPE stepvad.message AS (
    site text, id text, month date, camera text, label text, severity text,
    start_time timestamptz, end_time timestamptz, top_score double precision, version bigint,
    record jsonb, is_start boolean, is_mark boolean, mark text, marked timestamptz, by text,
    problem text, body text
);

-- A message as columns; with a problem if it is none.
CREATE FUNCTION stepvad.read(subject text, body text) RETURNS stepvad.message
LANGUAGE plpgsql STABLE AS $$
DECLARE
    got stepvad.message;
    told jsonb;
BEGIN
    got.site := coalesce(substring(subject FROM '^events\.([A-Za-z0-9][A-Za-z0-9_-]{0,63})$'), '');
    told := body::jsonb;
    got.is_mark := told ->> 'type' = 'mark';
    got.is_start := told ->> 'type' = 'start';
    got.problem := CASE
        WHEN got.site = '' THEN 'expected a subject events.SITE, got ' || coalesce(left(subject, 80), 'none')
        WHEN told ->> 'site' IS DISTINCT FROM got.site
            THEN 'expected a message of site ' || got.site || ', got another site'
        WHEN told -> 'schema' IS DISTINCT FROM '1' OR told #> '{event,schema}' <> '1'
            THEN 'expected schema 1, got another: upgrade the centre before its sites'
        WHEN got.is_mark IS TRUE AND (told @@ '
            $.id.type() == "string" && $.by.type() == "string" && $.at.type() == "number"
            && $.start_time.type() == "number"
            && ($.mark == null || $.mark == "normal" || $.mark == "right")') IS TRUE THEN NULL
        WHEN got.is_start IS TRUE AND (told @@ '
            $.id.type() == "string" && $.start_time.type() == "number"
            && $.version.type() == "number" && $.open.type() == "array"') IS TRUE THEN NULL
        WHEN told ->> 'type' IN ('new', 'update', 'end') AND (told -> 'event' @@ '
            $.id.type() == "string" && $.camera.type() == "string" && $.camera != ""
            && $.label.type() == "string" && $.label != ""
            && ($.severity == "alert" || $.severity == "detection")
            && $.start_time.type() == "number" && $.version.type() == "number"
            && ($.end_time == null || $.end_time.type() == "number" && $.ended_by.type() == "string")
            && $.score.type() == "number" && $.top_score.type() == "number"
            && $.threshold.type() == "number" && $.confidence.type() == "number"
            && $.model_id.type() == "string" && $.model_sha256.type() == "string"
            && $.track_id.type() == "number" && $.epoch.type() == "number"
            && $.frame_seq.type() == "number"') IS TRUE THEN NULL
        ELSE 'expected an event or a mark with all its fields, got another message'
    END;
    IF got.problem IS NOT NULL THEN
        got.body := body;
        RETURN got;
    END IF;

    IF got.is_mark THEN
        got.mark := told ->> 'mark';
        got.by := left(told ->> 'by', 300);
        -- a clock that is ahead would outlast all later judgements
        got.marked := least(to_timestamp((told ->> 'at')::float8), now());
    ELSIF got.is_start THEN
        got.version := told ->> 'version';
        got.record := told -> 'open';
    ELSE
        told := told -> 'event';
        got.camera := told ->> 'camera';
        got.label := told ->> 'label';
        got.severity := told ->> 'severity';
        got.end_time := to_timestamp((told ->> 'end_time')::float8);
        got.top_score := told ->> 'top_score';
        got.version := told ->> 'version';
        got.record := told;
    END IF;
    got.id := told ->> 'id';
    got.start_time := to_timestamp((told ->> 'start_time')::float8);
    got.month := date_trunc('month', got.start_time AT TIME ZONE 'UTC');
    IF greatest(length(got.id), length(got.camera), length(got.label)) > 300 OR got.id = '' THEN
        got.problem := 'expected an id, a camera and a label of 1 to 300 characters';
        got.body := body;
    ELSIF got.start_time NOT BETWEEN '1970-01-01 UTC' AND '9999-12-31 UTC'
        OR got.end_time NOT BETWEEN '1970-01-01 UTC' AND '9999-12-31 UTC' THEN
        got.problem := 'expected times from 1970 to 9999';
        got.body := body;
    END IF;
    RETURN got;
END $$;

-- The same of what may be no JSON, or have numbers out of range or NUL characters, or be nested too
-- deeply.
CREATE FUNCTION stepvad.read_safely(subject text, body text) RETURNS stepvad.message
LANGUAGE plpgsql STABLE AS $$
DECLARE
    got stepvad.message;
BEGIN
    RETURN stepvad.read(subject, body);
EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
    got := stepvad.read(subject, 'null'); -- for the site
    got.problem := SQLERRM;
    got.body := body;
    RETURN got;
END $$;

-- Store a batch of messages. Of two changes of an event an end wins, else the higher version.
CREATE OR REPLACE FUNCTION stepvad.put(subjects text[], bodies text[],
    OUT stored bigint, OUT known bigint, OUT expired bigint, OUT refused bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    told stepvad.message[];
    n_marks bigint;
BEGIN
    BEGIN
        SELECT array_agg(stepvad.read(subject, body)) INTO told
        FROM unnest(subjects, bodies) AS sent(subject, body);
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN -- of any; one by one costs more
        SELECT array_agg(stepvad.read_safely(subject, body)) INTO told
        FROM unnest(subjects, bodies) AS sent(subject, body);
    END;
    SELECT coalesce(array_agg(got) FILTER (WHERE late.month IS NULL), '{}'), count(late.month)
    INTO told, expired
    FROM unnest(told) AS got LEFT JOIN stepvad.months AS late
        ON late.month = got.month AND late.dropped IS NOT NULL AND got.problem IS NULL;

    INSERT INTO stepvad.refused (site, reason, body)
    SELECT site, left(problem, 300), coalesce(body, '') FROM unnest(told) WHERE problem IS NOT NULL;
    GET DIAGNOSTICS refused = ROW_COUNT;
    IF refused > 0 THEN
        DELETE FROM stepvad.refused AS old
        USING (SELECT DISTINCT site FROM unnest(told) WHERE problem IS NOT NULL) AS new
        WHERE old.site = new.site AND old.number <= (
            SELECT number FROM stepvad.refused WHERE site = new.site
            ORDER BY number DESC OFFSET 1000 LIMIT 1);
    END IF;

    -- rows are locked in the order of their keys, so that two batches cannot deadlock
    INSERT INTO stepvad.events AS old (site, id, month, camera, label, severity, start_time,
        end_time, top_score, version, record)
    SELECT DISTINCT ON (site, id, month) site, id, month, camera, label, severity, start_time,
        end_time, top_score, version, record
    FROM unnest(told) WHERE problem IS NULL AND NOT is_mark AND NOT is_start
    ORDER BY site, id, month, end_time IS NOT NULL DESC, version DESC
    ON CONFLICT (site, id, month) DO UPDATE SET camera = excluded.camera, label = excluded.label,
        severity = excluded.severity, start_time = excluded.start_time,
        end_time = excluded.end_time, top_score = excluded.top_score,
        version = excluded.version, record = excluded.record, changed = now()
    WHERE NOT old.erased AND (excluded.end_time IS NOT NULL, excluded.version)
        > (old.end_time IS NOT NULL, old.version);
    GET DIAGNOSTICS stored = ROW_COUNT;

    INSERT INTO stepvad.events AS old (site, id, month, start_time, mark, marked, reviewed,
        reviewed_by)
    SELECT DISTINCT ON (site, id, month) site, id, month, start_time, mark, marked, marked, by
    FROM unnest(told) WHERE problem IS NULL AND is_mark
    ORDER BY site, id, month, marked DESC
    ON CONFLICT (site, id, month) DO UPDATE SET mark = excluded.mark, marked = excluded.marked,
        reviewed = excluded.reviewed, reviewed_by = excluded.reviewed_by
    WHERE NOT old.erased AND (old.marked IS NULL OR excluded.marked > old.marked);
    GET DIAGNOSTICS n_marks = ROW_COUNT;
    stored := stored + n_marks;

    -- a site that was killed while its disk was full has lost what it had told: that is over. Later
    -- ends have a higher version; an event from far ahead is one of a clock that was wrong.
    UPDATE stepvad.events AS old
    SET end_time = greatest(old.changed, old.start_time), changed = now(),
        record = old.record || jsonb_build_object('ended_by', 'interrupted',
            'end_time', extract(epoch FROM greatest(old.changed, old.start_time)))
    FROM unnest(told) AS start
    WHERE start.is_start AND start.problem IS NULL AND old.site = start.site
        AND old.end_time IS NULL AND old.record IS NOT NULL AND NOT start.record ? old.id
        AND (old.version < start.version OR old.start_time > start.start_time + interval '1 hour');
    known := cardinality(told) - refused - stored;
END $$;

CREATE OR REPLACE FUNCTION stepvad.put(subject text, body text,
    OUT stored bigint, OUT known bigint, OUT expired bigint, OUT refused bigint)
LANGUAGE sql AS 'SELECT * FROM stepvad.put(ARRAY[subject], ARRAY[body])';

-- Make the partitions of this month, of the next two and of months that have events; drop those
-- that are over for longer than events are kept.
CREATE OR REPLACE FUNCTION stepvad.retain(OUT made bigint, OUT dropped bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    kept interval := (SELECT make_interval(secs => 86400 * retention_days) FROM stepvad.about);
    this date := date_trunc('month', now() AT TIME ZONE 'UTC');
    missing date[];
    outdated date[];
    one date;
    name text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('stepvad.retain'));
    SELECT array_agg(month) INTO missing FROM (
        SELECT month::date FROM generate_series(this, this + interval '2 months', '1 month') AS month
        UNION SELECT month FROM stepvad.events_other
            WHERE month BETWEEN date_trunc('month', now() - kept) AND this + interval '2 months'
        EXCEPT SELECT month FROM stepvad.months) AS wanted;
    SELECT array_agg(month) INTO outdated FROM stepvad.months AS m
    WHERE m.dropped IS NULL AND month + interval '1 month' < now() - kept;
    made := coalesce(cardinality(missing), 0);
    dropped := coalesce(cardinality(outdated), 0);

    IF made + dropped > 0 THEN -- all locks at once: a batch that is being stored waits or is waited for
        LOCK TABLE stepvad.events IN ACCESS EXCLUSIVE MODE;
    END IF;
    FOREACH one IN ARRAY coalesce(missing, '{}') LOOP
        name := 'events_' || to_char(one, 'YYYY_MM');
        EXECUTE format('CREATE TABLE stepvad.%I (LIKE stepvad.events INCLUDING ALL)', name);
        EXECUTE format('WITH moved AS (DELETE FROM stepvad.events_other WHERE month = %L RETURNING *)
            INSERT INTO stepvad.%I SELECT * FROM moved', one, name);
        EXECUTE format('ALTER TABLE stepvad.events ATTACH PARTITION stepvad.%I FOR VALUES IN (%L)',
            name, one);
        INSERT INTO stepvad.months (month) VALUES (one);
    END LOOP;
    FOREACH one IN ARRAY coalesce(outdated, '{}') LOOP
        EXECUTE format('DROP TABLE stepvad.%I', 'events_' || to_char(one, 'YYYY_MM'));
        UPDATE stepvad.months AS m SET dropped = now() WHERE month = one;
    END LOOP;

    DELETE FROM stepvad.events_other WHERE changed < now() - kept
        OR month IN (SELECT month FROM stepvad.months AS m WHERE m.dropped IS NOT NULL);
    DELETE FROM stepvad.refused WHERE at < now() - kept;
END $$;

-- Judge an event, or take the judgement back with null; false if a later one is there, or no event.
CREATE OR REPLACE FUNCTION stepvad.judge(of_site text, of_id text, what text, who text,
    judged timestamptz) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE stepvad.events SET mark = what, marked = judged, reviewed = judged, reviewed_by = who
    WHERE site = of_site AND id = of_id AND record IS NOT NULL
        AND (marked IS NULL OR marked < judged);
    RETURN FOUND;
END $$;

-- Note who was the first to look at an event; false if there is no such event.
CREATE OR REPLACE FUNCTION stepvad.see(of_site text, of_id text, who text, seen timestamptz)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE stepvad.events SET reviewed_by = CASE WHEN reviewed IS NULL THEN who ELSE reviewed_by END,
        reviewed = coalesce(reviewed, seen)
    WHERE site = of_site AND id = of_id AND record IS NOT NULL;
    RETURN FOUND;
END $$;

-- Keep the explanation of an event; false if there is no such event.
CREATE OR REPLACE FUNCTION stepvad.explain(of_site text, of_id text, told jsonb) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE stepvad.events SET explanation = told
    WHERE site = of_site AND id = of_id AND record IS NOT NULL;
    RETURN FOUND;
END $$;

-- End a session of the page, and forget those that are over.
CREATE OR REPLACE FUNCTION stepvad.end_session(ended text, ends timestamptz) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM stepvad.ended_sessions WHERE until < now();
    INSERT INTO stepvad.ended_sessions VALUES (ended, ends) ON CONFLICT DO NOTHING;
$$;

-- Erase events of a site; open ones only if asked. Their rows stay, so that they do not come back.
CREATE OR REPLACE FUNCTION stepvad.erase(of_site text, ids text[], with_open boolean)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    n bigint;
BEGIN
    UPDATE stepvad.events SET erased = true, record = NULL, camera = '', label = '', severity = '',
        start_time = month::timestamp AT TIME ZONE 'UTC', end_time = NULL, top_score = 0, mark = NULL, marked = NULL,
        reviewed = NULL, reviewed_by = '', explanation = NULL, changed = now()
    WHERE site = of_site AND id = ANY (ids) AND NOT erased AND record IS NOT NULL
        AND (with_open OR end_time IS NOT NULL);
    GET DIAGNOSTICS n = ROW_COUNT;
    DELETE FROM stepvad.refused
    WHERE site = of_site AND EXISTS (SELECT FROM unnest(ids) AS id WHERE position(id IN body) > 0);
    RETURN n;
END $$;

-- The writer stores and drops months; the reader looks, reviews and erases. Nobody else does anything.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA stepvad FROM PUBLIC;
DO $$
BEGIN
    IF (SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user) THEN
        IF to_regrole('stepvad_writer') IS NULL THEN CREATE ROLE stepvad_writer; END IF;
        IF to_regrole('stepvad_reader') IS NULL THEN CREATE ROLE stepvad_reader; END IF;
    END IF;
    IF to_regrole('stepvad_writer') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA stepvad TO stepvad_writer;
        GRANT SELECT ON stepvad.about TO stepvad_writer;
        GRANT EXECUTE ON FUNCTION stepvad.put(text[], text[]), stepvad.put(text, text),
            stepvad.retain() TO stepvad_writer;
    END IF;
    IF to_regrole('stepvad_reader') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA stepvad TO stepvad_reader;
        GRANT SELECT ON stepvad.about, stepvad.events, stepvad.months, stepvad.refused,
            stepvad.ended_sessions TO stepvad_reader;
        GRANT EXECUTE ON FUNCTION stepvad.judge(text, text, text, text, timestamptz),
            stepvad.see(text, text, text, timestamptz), stepvad.explain(text, text, jsonb),
            stepvad.erase(text, text[], boolean), stepvad.end_session(text, timestamptz)
            TO stepvad_reader;
    END IF;
END $$;
