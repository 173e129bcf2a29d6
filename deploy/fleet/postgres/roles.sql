-- Roles and the database of a fleet, once, as a superuser: psql -f roles.sql
-- Then, as the owner: stepvad fleet events SETTINGS --migrate, which grants what each role may do.
CREATE ROLE stepvad_owner LOGIN CONNECTION LIMIT 5; -- makes the tables; not for daily use
CREATE ROLE stepvad_writer LOGIN; -- stepvad fleet events
CREATE ROLE stepvad_reader LOGIN; -- the page, dashboards
GRANT pg_checkpoint TO stepvad_owner;
CREATE DATABASE stepvad OWNER stepvad_owner;
REVOKE ALL ON DATABASE stepvad FROM PUBLIC;
GRANT CONNECT ON DATABASE stepvad TO stepvad_writer, stepvad_reader;
