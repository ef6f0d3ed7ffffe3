"""The tables of the SQLite store."""

#: in the file's header; a change of the tables counts it up
VERSION = 1

TABLES = """
CREATE TABLE store (id TEXT);                   -- one row: tells this store from every other one
INSERT INTO store VALUES (lower(hex(randomblob(8))));

CREATE TABLE jobs (                             -- AUTOINCREMENT: the number of a removed job never comes back
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, user TEXT, name TEXT, live INTEGER,
    wake REAL,                                  -- NULL: nothing is left to do
    version INTEGER, document TEXT);
CREATE INDEX jobs_by_wake ON jobs (wake) WHERE wake IS NOT NULL;
CREATE INDEX jobs_by_name ON jobs (name);
CREATE INDEX jobs_live ON jobs (number) WHERE live;
CREATE TABLE events (
    job_id TEXT, seq INTEGER, document TEXT, at REAL, PRIMARY KEY (job_id, seq)) WITHOUT ROWID;
CREATE INDEX events_by_time ON events (at, job_id, seq);
CREATE TABLE leases (                           -- taken: by the clock of that boot, which is never set
    job_id TEXT PRIMARY KEY, owner TEXT, token INTEGER,
    ttl REAL,                                   -- 0: released
    taken REAL, boot TEXT) WITHOUT ROWID;
CREATE TABLE ops (                              -- what the newest commits stored, for a caller who lost the reply
    job_id TEXT, version INTEGER, op_id TEXT, document TEXT, PRIMARY KEY (job_id, version));
CREATE TABLE keys (key TEXT PRIMARY KEY, job_id TEXT) WITHOUT ROWID;
CREATE TABLE changes (                          -- removed jobs stay: those who follow must hear of it
    job_id TEXT PRIMARY KEY, number INTEGER) WITHOUT ROWID;
CREATE UNIQUE INDEX changes_by_number ON changes (number, job_id);
CREATE TABLE removed (                          -- the records of removed jobs, reduced to what they have cost
    job_id TEXT PRIMARY KEY, document TEXT) WITHOUT ROWID;
CREATE TABLE zones (                            -- ever asked for a slice: outlives the jobs that asked
    zone TEXT PRIMARY KEY) WITHOUT ROWID;

CREATE TABLE suspects (physical TEXT PRIMARY KEY, document TEXT) WITHOUT ROWID;
CREATE TABLE accusations (                      -- stays when a suspect is forgotten: a repeat must not revive it
    op_id TEXT PRIMARY KEY) WITHOUT ROWID;

CREATE TABLE members (name TEXT PRIMARY KEY, role TEXT, id TEXT) WITHOUT ROWID;

CREATE TABLE messages (
    id TEXT PRIMARY KEY, channel TEXT, version INTEGER,
    due REAL,                                   -- NULL: there is no further try
    until REAL, document TEXT) WITHOUT ROWID;
CREATE INDEX messages_due ON messages (due) WHERE due IS NOT NULL;
CREATE INDEX messages_of ON messages (channel, until);
CREATE INDEX messages_by_end ON messages (until);
CREATE TABLE progress (name TEXT PRIMARY KEY, change INTEGER, since REAL) WITHOUT ROWID;
"""
