"""The tables of the SQLite store: scripts that create them in a new file and migrate an older file.

Each script leads from one version of the tables to the next, the first from an empty file; a new file runs all of them.
A released script is never edited: a change is another script at the end.
"""

_JOBS = """
CREATE TABLE jobs (                             -- AUTOINCREMENT: the number of a removed job never comes back
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, user TEXT, name TEXT, live INTEGER,
    wake REAL,                                  -- NULL: nothing is left to do
    version INTEGER, document TEXT);
CREATE INDEX jobs_by_wake ON jobs (wake) WHERE wake IS NOT NULL;
CREATE INDEX jobs_by_name ON jobs (name);
CREATE INDEX jobs_live ON jobs (number) WHERE live;
CREATE TABLE events (
    job_id TEXT, seq INTEGER, document TEXT, PRIMARY KEY (job_id, seq)) WITHOUT ROWID;
CREATE TABLE leases (
    job_id TEXT PRIMARY KEY, owner TEXT, token INTEGER, until REAL) WITHOUT ROWID;
CREATE TABLE ops (                              -- what the newest commits stored, for a caller who lost the reply
    job_id TEXT, version INTEGER, op_id TEXT, document TEXT, PRIMARY KEY (job_id, version));
CREATE TABLE keys (key TEXT PRIMARY KEY, job_id TEXT) WITHOUT ROWID;
CREATE TABLE changes (                          -- removed jobs stay: those who follow must hear of it
    job_id TEXT PRIMARY KEY, number INTEGER) WITHOUT ROWID;
CREATE UNIQUE INDEX changes_by_number ON changes (number, job_id);
"""

#: the zones of slices that were requested before this table existed are in the records and the events
_SUSPECTS = """
CREATE TABLE suspects (
    physical TEXT PRIMARY KEY, zone TEXT, score REAL, updated_at REAL, pinned TEXT,
    reasons TEXT) WITHOUT ROWID;                -- a JSON list, the newest last
CREATE TABLE accusations (                      -- stays when a suspect is forgotten: a repeat must not revive it
    op_id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE zones (                            -- ever asked for a slice: outlives the jobs that asked
    zone TEXT PRIMARY KEY) WITHOUT ROWID;
INSERT OR IGNORE INTO zones
    SELECT json_extract(slice.value, '$.zone') AS zone
    FROM jobs, json_each(iif(json_valid(document), document, '{}'), '$.slices') AS slice
    WHERE slice.type = 'object' AND zone IS NOT NULL;
INSERT OR IGNORE INTO zones
    SELECT json_extract(iif(json_valid(document), document, '{}'), '$.data.zone') AS zone
    FROM events WHERE zone IS NOT NULL;
"""

_MEMBERS = """
CREATE TABLE members (name TEXT PRIMARY KEY, role TEXT, id TEXT) WITHOUT ROWID;
"""

#: NULL: the document cannot be read
_TIMES = """
ALTER TABLE events ADD COLUMN at REAL;
UPDATE events SET at = json_extract(iif(json_valid(document), document, '{}'), '$.at');
CREATE INDEX events_by_time ON events (at, job_id, seq) WHERE at IS NOT NULL;
"""

_OUTBOX = """
CREATE TABLE notes (
    channel TEXT, key TEXT, open INTEGER, at REAL, until REAL, document TEXT,
    PRIMARY KEY (channel, key)) WITHOUT ROWID;
CREATE INDEX notes_open ON notes (channel, at) WHERE open;
CREATE INDEX notes_by_end ON notes (until);
CREATE TABLE messages (
    id TEXT PRIMARY KEY, channel TEXT, version INTEGER,
    due REAL,                                   -- NULL: there is no further try
    until REAL, document TEXT) WITHOUT ROWID;
CREATE INDEX messages_due ON messages (due) WHERE due IS NOT NULL;
CREATE INDEX messages_of ON messages (channel, id);
CREATE INDEX messages_by_end ON messages (until);
CREATE TABLE channels (name TEXT PRIMARY KEY, version INTEGER, document TEXT) WITHOUT ROWID;
CREATE TABLE progress (name TEXT PRIMARY KEY, change INTEGER, since REAL) WITHOUT ROWID;
"""

_ACCUSERS = """
ALTER TABLE suspects ADD COLUMN owners TEXT DEFAULT '{}';  -- a JSON object: whose jobs made which part of the score
"""

_STORE = """
CREATE TABLE store (id TEXT);                   -- one row: tells this store from every other one
INSERT INTO store VALUES (lower(hex(randomblob(8))));
"""

#: what was collected for a later message becomes a message of its own
_ONE_OUTBOX = """
INSERT INTO messages
    SELECT id, channel, 1, at, until, json_object(
        'id', id, 'channel', channel, 'at', at, 'due', at, 'notification', json(document))
    FROM (SELECT *, 'msg_' || lower(hex(channel || key)) AS id FROM notes
        WHERE open AND json_valid(document));
DROP TABLE notes;
DROP TABLE channels;
DROP INDEX messages_of;
CREATE INDEX messages_of ON messages (channel, until);
"""

_SPENT = """
CREATE TABLE spent (                            -- what removed jobs have cost
    job_id TEXT PRIMARY KEY, document TEXT) WITHOUT ROWID;
"""

#: the scores of before do not say what proves them
_PROVED = """
DROP TABLE suspects;
CREATE TABLE suspects (physical TEXT PRIMARY KEY, document TEXT) WITHOUT ROWID;
"""

#: the records of removed jobs, reduced to what they have cost
_REMOVED = """
DROP TABLE spent;
CREATE TABLE removed (job_id TEXT PRIMARY KEY, document TEXT) WITHOUT ROWID;
"""

#: `taken`: by the clock of that boot of the machine, which is never set; a `ttl` of 0: it was released
_BOOTS = """
ALTER TABLE leases RENAME COLUMN until TO ttl;
ALTER TABLE leases ADD COLUMN taken REAL DEFAULT 0;
ALTER TABLE leases ADD COLUMN boot TEXT DEFAULT '';
"""

SCRIPTS = (
    _JOBS, _SUSPECTS, _MEMBERS, _TIMES, _OUTBOX, _ACCUSERS, _STORE, _ONE_OUTBOX, _SPENT, _PROVED, _REMOVED,
    _BOOTS,
)  # fmt: skip
