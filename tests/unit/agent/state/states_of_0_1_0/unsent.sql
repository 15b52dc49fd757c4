-- A state file as release 0.1.0 (commit e77d356) left it: its own agent ran over its own simulated Slurm in virtual
-- time, from 1000000000 on, and was thrown away at an instant; this is SQLite's dump of the file, as it was then.
-- The file of this name with .json says what Slurm had been asked to do, and which jobs it had.
-- It was thrown away in the submission of stage b, which Slurm had not received.
PRAGMA user_version=4;
PRAGMA application_id=0;
BEGIN TRANSACTION;
CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, verb TEXT NOT NULL, subject TEXT NOT NULL,
        reasons TEXT NOT NULL, details TEXT NOT NULL);
INSERT INTO "decisions" VALUES(1,1000000000.0,'nothing','agent','[["complete-picture", "the picture is complete"]]','{}');
INSERT INTO "decisions" VALUES(2,1000000000.0,'nothing','workflow 1/b','[["eager-parent-first", "a must be submitted before b"]]','{}');
INSERT INTO "decisions" VALUES(3,1000000000.0,'nothing','workflow 1/c','[["eager-parent-first", "b must be submitted before c"]]','{}');
INSERT INTO "decisions" VALUES(4,1000000000.0,'submit','workflow 1/a','[["eager-first", "submit a at once: it waits for no other"]]','{"job": 1, "estimate": null, "parent_end": null, "due": 1000000000.0}');
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "facts" VALUES('pruned.at','1000000000.0');
CREATE TABLE inbox (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, uid INTEGER NOT NULL, op TEXT NOT NULL, payload TEXT NOT NULL);
CREATE TABLE intents (
        id INTEGER PRIMARY KEY, verb TEXT NOT NULL, subject TEXT NOT NULL, payload TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'open', opened REAL NOT NULL, closed REAL, outcome TEXT);
INSERT INTO "intents" VALUES(1,'submit','workflow 1/a','{"name": "penstock.1-d11ba1.1.last.a", "nodes": 2}','done',1000000000.0,1000000000.0,'');
INSERT INTO "intents" VALUES(2,'submit','workflow 1/b','{"name": "penstock.1-d11ba1.1.last.b", "nodes": 2}','unknown',1000000000.5,1000000000.5,'Killed()');
CREATE TABLE learned (key TEXT PRIMARY KEY, updated REAL NOT NULL, state TEXT NOT NULL);
INSERT INTO "learned" VALUES('asa-default mock/main////-1/1/0//-1/-1/',1000000000.5,'{"version":1,"alternatives":[2.0,10.0,20.0,30.0],"gamma":"constant","round":1,"trials":0,"log_weights":[0.0,0.0,0.0,0.0],"losses":[0.0,0.0,0.0,0.0]}');
CREATE TABLE malleable (job INTEGER PRIMARY KEY, ended REAL, state TEXT NOT NULL);
CREATE TABLE messages (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL, channel TEXT NOT NULL, at REAL NOT NULL, event TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'open', tries INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL, closed REAL,
        outcome TEXT NOT NULL DEFAULT '', UNIQUE (key, channel));
CREATE TABLE resizes (
        id INTEGER PRIMARY KEY, job INTEGER NOT NULL, epoch INTEGER NOT NULL, kind TEXT NOT NULL,
        old_size INTEGER NOT NULL, new_size INTEGER NOT NULL, outcome TEXT NOT NULL, finished REAL NOT NULL,
        marks TEXT NOT NULL, uid INTEGER, nodes INTEGER);
CREATE TABLE runs (
        id INTEGER PRIMARY KEY, uid INTEGER NOT NULL, created REAL NOT NULL, finished REAL, state TEXT NOT NULL, kind TEXT NOT NULL DEFAULT 'workflow');
INSERT INTO "runs" VALUES(1,0,1000000000.0,NULL,'{"version": 3, "id": 1, "workflow": {"version": 1, "name": "last", "partition": null, "account": null, "qos": null, "workdir": null, "environment": {}, "source": "workflow", "stages": [{"name": "a", "nodes": 2, "time_limit": 600.0, "run_time": 30, "command": "sleep 30", "after": [], "retries": 0, "guessed": false, "meanwhile": "", "took": [], "inputs": []}, {"name": "b", "nodes": 2, "time_limit": 600.0, "run_time": 10, "command": "sleep 10", "after": ["a"], "retries": 0, "guessed": false, "meanwhile": "", "took": [], "inputs": []}, {"name": "c", "nodes": 2, "time_limit": 600.0, "run_time": 10, "command": "sleep 10", "after": ["b"], "retries": 0, "guessed": false, "meanwhile": "", "took": [], "inputs": []}]}, "strategy": "eager", "by": null, "max_time": null, "levels_ahead": 2, "submitted_at": 1000000000.0, "partition": "main", "qos": "", "stages": [{"name": "a", "after": [], "phase": "running", "attempt": 1, "job": 1, "depends_on": [], "covers": ["a"], "tie": "none", "minutes": [], "pins": [], "changes": 0, "looked_at": null, "nodes": ["n1", "n2"], "exclude": [], "misses": 0, "wasted": 0.0, "idle": 0.0, "retries": 0, "mishaps": 0, "timeouts": 0, "restarts": 0, "estimate_index": null, "estimate": null, "estimate_said": {}, "parent_end": null, "due": 1000000000.0, "submitted": 1000000000.0, "released": null, "eligible": 1000000000.0, "start": 1000000000.0, "end": null, "slurm_state": null, "exit_code": null, "failure": null, "failures": 0, "retry_at": null, "sought": null, "observed": true, "hindered": null}, {"name": "b", "after": [0], "phase": "intended", "attempt": 1, "job": null, "depends_on": [1], "covers": ["b"], "tie": "afterok", "minutes": [], "pins": [], "changes": 0, "looked_at": null, "nodes": [], "exclude": [], "misses": 0, "wasted": 0.0, "idle": 0.0, "retries": 0, "mishaps": 0, "timeouts": 0, "restarts": 0, "estimate_index": null, "estimate": null, "estimate_said": {}, "parent_end": 1000000030.0, "due": 1000000000.5, "submitted": null, "released": null, "eligible": null, "start": null, "end": null, "slurm_state": null, "exit_code": null, "failure": null, "failures": 0, "retry_at": null, "sought": null, "observed": false, "hindered": null}, {"name": "c", "after": [1], "phase": "waiting", "attempt": 0, "job": null, "depends_on": [], "covers": ["c"], "tie": "none", "minutes": [], "pins": [], "changes": 0, "looked_at": null, "nodes": [], "exclude": [], "misses": 0, "wasted": 0.0, "idle": 0.0, "retries": 0, "mishaps": 0, "timeouts": 0, "restarts": 0, "estimate_index": null, "estimate": null, "estimate_said": {}, "parent_end": null, "due": null, "submitted": null, "released": null, "eligible": null, "start": null, "end": null, "slurm_state": null, "exit_code": null, "failure": null, "failures": 0, "retry_at": null, "sought": null, "observed": false, "hindered": null}], "phase": "active", "why": null, "ended_at": null, "discarded": [], "token": "d11ba1"}','workflow');
CREATE TABLE waits (id INTEGER PRIMARY KEY, at REAL NOT NULL, key TEXT NOT NULL, estimate REAL, wait REAL NOT NULL,
        censored INTEGER NOT NULL, bound REAL);
INSERT INTO "waits" VALUES(1,1000000000.5,'mock/main////-1/1/0//-1/-1/',NULL,0.0,0,NULL);
CREATE INDEX intents_open ON intents (state) WHERE state = 'open';
CREATE INDEX decisions_subject ON decisions (subject, id);
CREATE INDEX waits_key ON waits (key, id);
COMMIT;
