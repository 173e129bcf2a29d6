"""Tables, row security and privileges by tenant; the fleet's own events have the tenant ''."""

from __future__ import annotations

from stepvad.fleet.tenant_name import checked_tenant

GROUP = "stepvad_tenant"
"""Role whose members are the roles of tenants."""

TENANTS = """
CREATE INDEX events_of_tenant ON stepvad.events (tenant, start_time, id) WHERE tenant <> '';
CREATE INDEX events_of_tenant_by_place ON stepvad.events (tenant, site, camera, start_time, id)
    WHERE tenant <> '';
CREATE INDEX events_of_tenant_to_review ON stepvad.events (tenant, start_time, id)
    WHERE tenant <> '' AND reviewed IS NULL;
ALTER TABLE stepvad.events ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_tenant ON stepvad.events USING (
    tenant <> '' AND tenant = substr(current_user::text COLLATE "default", 16)
    AND starts_with(current_user::text, 'stepvad_tenant_')
);
CREATE TABLE stepvad.retention (
    tenant text PRIMARY KEY,
    days double precision NOT NULL CHECK (days > 0 AND days <= 1000000)
);
INSERT INTO stepvad.retention (tenant, days) VALUES ('', 30);
CREATE FUNCTION stepvad.retain(asked double precision, most bigint) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DELETE FROM stepvad.forgotten WHERE deleted < now() - make_interval(
    secs => 86400 * greatest(30, asked, (SELECT max(days) FROM stepvad.retention)));
WITH usual AS (
    SELECT greatest(days, asked) AS days FROM stepvad.retention WHERE tenant = ''
), shortest AS (
    SELECT least(usual.days, (SELECT min(days) FROM stepvad.retention WHERE tenant <> '')) AS days
    FROM usual
), old AS (
    SELECT e.id FROM usual, stepvad.events AS e
    LEFT JOIN stepvad.retention AS own ON own.tenant = e.tenant AND own.tenant <> ''
    WHERE e.end_time < now() - make_interval(secs => 86400 * (SELECT days FROM shortest))
        AND e.end_time < now() - make_interval(secs => 86400 * coalesce(own.days, usual.days))
    LIMIT greatest(most, 0) FOR UPDATE OF e SKIP LOCKED
), gone AS (
    DELETE FROM stepvad.events AS e USING old WHERE e.id = old.id RETURNING e.id
), noted AS (
    INSERT INTO stepvad.forgotten (id) SELECT id FROM gone ON CONFLICT DO NOTHING
)
SELECT count(*) FROM gone
$$;
REVOKE ALL ON FUNCTION stepvad.retain(double precision, bigint) FROM PUBLIC;
"""
"""Whose an event is, and how long it is kept, which the owner alone decides.

An id is unique in the whole fleet: `TENANT.` comes first in that of a tenant, and no other id has
a dot. Without a row of its own a tenant has the days of ''. `asked` may lengthen those, never
shorten them. The collation is that of the column, or the policy could not use the indexes. The
owner of the tables is not subject to the policies, and could drop them anyway.
"""

_OF_FLEET = """
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_policy WHERE polname = '{role}'
            AND polrelid = 'stepvad.events'::regclass) THEN
        CREATE POLICY {role} ON stepvad.events TO {role} USING (true);
    END IF;
END $$;
"""
_REVIEWED = "mark, reviewed, reviewed_by"
_KEPT = (
    "label, severity, start_time, end_time, top_score, record, rank, turn, "
    "first_sequence, last_sequence"
)

GRANTS = {
    "stepvad_writer": f"""
REVOKE ALL ON stepvad.events, stepvad.forgotten FROM stepvad_writer;
GRANT USAGE ON SCHEMA stepvad TO stepvad_writer;
GRANT SELECT ON stepvad.schema_version, stepvad.events, stepvad.forgotten,
    stepvad.retention TO stepvad_writer;
GRANT INSERT (id, tenant, site, camera, {_KEPT}), UPDATE ({_KEPT}, changed)
    ON stepvad.events TO stepvad_writer;
GRANT EXECUTE ON FUNCTION stepvad.retain(double precision, bigint) TO stepvad_writer;
"""
    + _OF_FLEET.format(role="stepvad_writer"),
    "stepvad_reader": f"""
GRANT USAGE ON SCHEMA stepvad TO stepvad_reader;
GRANT SELECT ON stepvad.schema_version, stepvad.events TO stepvad_reader;
GRANT UPDATE ({_REVIEWED}) ON stepvad.events TO stepvad_reader;
"""
    + _OF_FLEET.format(role="stepvad_reader"),
    GROUP: f"""
GRANT USAGE ON SCHEMA stepvad TO {GROUP};
GRANT SELECT ON stepvad.schema_version, stepvad.events TO {GROUP};
GRANT UPDATE ({_REVIEWED}) ON stepvad.events TO {GROUP};
""",
}
"""Privileges of each role, if it exists: the writer deletes nothing, the others only review."""

_ROLE = """
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{group}') THEN
        CREATE ROLE {group} NOLOGIN;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '{role}') THEN
        CREATE ROLE "{role}" LOGIN CONNECTION LIMIT 10;
    END IF;
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO {group}', current_database());
END $$;
GRANT {group} TO "{role}";
ALTER ROLE "{role}" SET statement_timeout = '30s';
ALTER ROLE "{role}" SET idle_in_transaction_session_timeout = '10s';
"""


def role_of(tenant: str) -> str:
    """The role that reads and reviews the events of a tenant."""
    return f"{GROUP}_{checked_tenant(tenant)}"


def role_sql(tenant: str) -> str:
    """SQL that makes the role of a tenant; for a superuser, in the migrated database."""
    return _ROLE.format(group=GROUP, role=role_of(tenant)) + GRANTS[GROUP].lstrip("\n")


def drop_role_sql(tenant: str) -> str:
    """SQL that takes the role of a tenant away; its events stay until they are deleted."""
    return f'DROP ROLE IF EXISTS "{role_of(tenant)}";\n'
