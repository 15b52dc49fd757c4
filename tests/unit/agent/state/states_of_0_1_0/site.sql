-- A state file as release 0.1.0 (commit e77d356) left it: its own agent ran over its own simulated Slurm in virtual
-- time, from 1000000000 on, and was thrown away at an instant; this is SQLite's dump of the file, as it was then,
-- but for the name of the folder that its jobs were submitted from.
-- The file of this name with .json says what Slurm had been asked to do, and which jobs it had.
PRAGMA user_version=4;
PRAGMA application_id=0;
BEGIN TRANSACTION;
CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, verb TEXT NOT NULL, subject TEXT NOT NULL,
        reasons TEXT NOT NULL, details TEXT NOT NULL);
INSERT INTO "decisions" VALUES(1,1000000000.0,'nothing','agent','[["complete-picture", "the picture is complete"]]','{}');
INSERT INTO "decisions" VALUES(2,1000000000.0,'nothing','workflow 1/b','[["waits", "b waits for a (running)"]]','{}');
INSERT INTO "decisions" VALUES(3,1000000000.0,'nothing','workflow 1/c','[["waits", "c waits for b (submitted)"]]','{}');
INSERT INTO "decisions" VALUES(4,1000000000.0,'nothing','workflow 2/b','[["due-later", "due at 01:47:05Z: the stage before it ends about 01:47:25Z, wait 20 s"]]','{}');
INSERT INTO "decisions" VALUES(5,1000000000.0,'nothing','workflow 2/c','[["due-later", "due at 01:47:15Z: the stage before it ends about 01:47:45Z, wait 30 s"]]','{}');
INSERT INTO "decisions" VALUES(6,1000000025.0,'release','workflow 2/b','[["due", "due at 01:47:05Z: the stage before it ends about 01:47:25Z, wait 20 s"], ["dependency-read-back", "job 5 depends on afterok:4(unfulfilled)"]]','{"job": 5}');
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "facts" VALUES('pruned.at','1000000000.0');
CREATE TABLE inbox (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, uid INTEGER NOT NULL, op TEXT NOT NULL, payload TEXT NOT NULL);
CREATE TABLE intents (
        id INTEGER PRIMARY KEY, verb TEXT NOT NULL, subject TEXT NOT NULL, payload TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'open', opened REAL NOT NULL, closed REAL, outcome TEXT);
INSERT INTO "intents" VALUES(1,'release','workflow 2/b','{"job": 5}','done',1000000025.0,1000000025.0,'');
CREATE TABLE learned (key TEXT PRIMARY KEY, updated REAL NOT NULL, state TEXT NOT NULL);
INSERT INTO "learned" VALUES('asa-default mock/main/normal/default/alice/-1/1/0//-1/-1/',1000000000.0,'{"version":1,"alternatives":[2.0,10.0,20.0,30.0],"gamma":"constant","round":1,"trials":0,"log_weights":[0.0,0.0,0.0,0.0],"losses":[0.0,0.0,0.0,0.0]}');
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
INSERT INTO "runs" VALUES(1,25735,1000000000.0,NULL,'{"version": 1, "id": 1, "uid": 25735, "user": "alice", "name": "waits", "strategy": "perstage", "created": 1000000000.0, "stages": [{"name": "a", "job": 1, "after": [], "expect": 60.0, "hold": false, "base": "", "order": {"words": ["-N2", "-t10", "a.sh"], "workdir": "/projects/alice", "script": null}, "phase": "running", "estimate_index": null, "estimate": null, "estimate_said": {}, "due": null, "registered": 1000000000.0, "submitted": 1000000000.0, "released": null, "eligible": 1000000000.0, "start": 1000000000.0, "end": null, "partition": "main", "qos": "normal", "account": "default", "nodes": 2, "limit": 600.0, "requeued_at": null, "trouble": null, "hindered": null, "slurm_state": null, "exit_code": null, "failure": null, "observed": true, "former": []}, {"name": "b", "job": 2, "after": ["a"], "expect": 10.0, "hold": true, "base": "", "order": {"words": ["-N2", "-t10", "b.sh"], "workdir": "/projects/alice", "script": null}, "phase": "submitted", "estimate_index": null, "estimate": null, "estimate_said": {}, "due": null, "registered": 1000000000.0, "submitted": 1000000000.0, "released": null, "eligible": null, "start": null, "end": null, "partition": "main", "qos": "normal", "account": "default", "nodes": 2, "limit": 600.0, "requeued_at": null, "trouble": null, "hindered": null, "slurm_state": null, "exit_code": null, "failure": null, "observed": false, "former": []}, {"name": "c", "job": 3, "after": ["b"], "expect": 10.0, "hold": true, "base": "", "order": {"words": ["-N2", "-t10", "c.sh"], "workdir": "/projects/alice", "script": null}, "phase": "submitted", "estimate_index": null, "estimate": null, "estimate_said": {}, "due": null, "registered": 1000000000.0, "submitted": 1000000000.0, "released": null, "eligible": null, "start": null, "end": null, "partition": "main", "qos": "normal", "account": "default", "nodes": 2, "limit": 600.0, "requeued_at": null, "trouble": null, "hindered": null, "slurm_state": null, "exit_code": null, "failure": null, "observed": false, "former": []}], "phase": "active", "why": null, "ended_at": null}','guided');
INSERT INTO "runs" VALUES(2,25735,1000000000.0,NULL,'{"version": 1, "id": 2, "uid": 25735, "user": "alice", "name": "ahead", "strategy": "asa", "created": 1000000000.0, "stages": [{"name": "a", "job": 4, "after": [], "expect": 45.0, "hold": false, "base": "", "order": {"words": ["-N2", "-t10", "a.sh"], "workdir": "/projects/alice", "script": null}, "phase": "running", "estimate_index": null, "estimate": null, "estimate_said": {}, "due": null, "registered": 1000000000.0, "submitted": 1000000000.0, "released": null, "eligible": 1000000000.0, "start": 1000000000.0, "end": null, "partition": "main", "qos": "normal", "account": "default", "nodes": 2, "limit": 600.0, "requeued_at": null, "trouble": null, "hindered": null, "slurm_state": null, "exit_code": null, "failure": null, "observed": true, "former": []}, {"name": "b", "job": 5, "after": ["a"], "expect": 20.0, "hold": true, "base": "", "order": {"words": ["-N2", "-t10", "b.sh"], "workdir": "/projects/alice", "script": null}, "phase": "queued", "estimate_index": 2, "estimate": 20.0, "estimate_said": {}, "due": 1000000025.0, "registered": 1000000000.0, "submitted": 1000000000.0, "released": 1000000025.0, "eligible": null, "start": null, "end": null, "partition": "main", "qos": "normal", "account": "default", "nodes": 2, "limit": 600.0, "requeued_at": null, "trouble": null, "hindered": null, "slurm_state": null, "exit_code": null, "failure": null, "observed": false, "former": []}, {"name": "c", "job": 6, "after": ["b"], "expect": 15.0, "hold": true, "base": "", "order": {"words": ["-N2", "-t10", "c.sh"], "workdir": "/projects/alice", "script": null}, "phase": "submitted", "estimate_index": 3, "estimate": 30.0, "estimate_said": {}, "due": 1000000035.0, "registered": 1000000000.0, "submitted": 1000000000.0, "released": null, "eligible": null, "start": null, "end": null, "partition": "main", "qos": "normal", "account": "default", "nodes": 2, "limit": 600.0, "requeued_at": null, "trouble": null, "hindered": null, "slurm_state": null, "exit_code": null, "failure": null, "observed": false, "former": []}], "phase": "active", "why": null, "ended_at": null}','guided');
CREATE TABLE waits (id INTEGER PRIMARY KEY, at REAL NOT NULL, key TEXT NOT NULL, estimate REAL, wait REAL NOT NULL,
        censored INTEGER NOT NULL, bound REAL);
INSERT INTO "waits" VALUES(1,1000000000.0,'mock/main/normal/default/alice/-1/1/0//-1/-1/',NULL,0.0,0,NULL);
INSERT INTO "waits" VALUES(2,1000000000.0,'mock/main/normal/default/alice/-1/1/0//-1/-1/',NULL,0.0,0,NULL);
CREATE INDEX intents_open ON intents (state) WHERE state = 'open';
CREATE INDEX decisions_subject ON decisions (subject, id);
CREATE INDEX waits_key ON waits (key, id);
COMMIT;
