-- A state file as release 0.1.0 (commit e77d356) left it beside a malleable job that had grown and shrunk by companions, which its
-- launcher had asked for: SQLite's dump of the file.
PRAGMA user_version=4;
PRAGMA application_id=0;
BEGIN TRANSACTION;
CREATE TABLE decisions (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, verb TEXT NOT NULL, subject TEXT NOT NULL,
        reasons TEXT NOT NULL, details TEXT NOT NULL);
INSERT INTO "decisions" VALUES(1,1000000000.0,'nothing','agent','[["complete-picture", "the picture is complete"]]','{}');
INSERT INTO "decisions" VALUES(2,1000000004.02,'expand','job 1','[["expand-idle", "6 nodes are idle; no pending job can use the idle nodes"], ["by-companion", "a second job holds the added nodes: PrologFlags=CONTAIN gives every job a step that forbids the merge"]]','{"size": 8}');
INSERT INTO "decisions" VALUES(3,1000000023.02,'shrink','job 1','[["shrink-for-pending", "job 3 waits for 4 nodes, and 0 are idle"], ["whole-companions", "of a companion all nodes stay or leave, which 4 nodes would not do"], ["whole", "with 2 processes it does"]]','{"size": 2}');
INSERT INTO "decisions" VALUES(4,1000000037.52,'expand','job 1','[["announced", "the application announced 4 processes for in 10 s; the nodes are expected to wait 28 s"], ["by-companion", "a second job holds the added nodes: PrologFlags=CONTAIN gives every job a step that forbids the merge"]]','{"size": 4}');
INSERT INTO "decisions" VALUES(5,1000000050.02,'nothing','job 1','[["no-room", "0 idle nodes do not fill a larger reachable size"]]','{"size": 4}');
INSERT INTO "decisions" VALUES(6,1000000065.02,'expand','job 1','[["expand-idle", "4 nodes are idle; no pending job can use the idle nodes"], ["by-companion", "a second job holds the added nodes: PrologFlags=CONTAIN gives every job a step that forbids the merge"]]','{"size": 8}');
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "facts" VALUES('pruned.at','1000000000.0');
CREATE TABLE inbox (
        id INTEGER PRIMARY KEY, at REAL NOT NULL, uid INTEGER NOT NULL, op TEXT NOT NULL, payload TEXT NOT NULL);
CREATE TABLE intents (
        id INTEGER PRIMARY KEY, verb TEXT NOT NULL, subject TEXT NOT NULL, payload TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'open', opened REAL NOT NULL, closed REAL, outcome TEXT);
INSERT INTO "intents" VALUES(1,'ask the launcher','job 1/expand','{"name": "penstock-1-610554f22ef2", "nodes": 6}','done',1000000004.02,1000000004.02,'');
INSERT INTO "intents" VALUES(2,'cancel','job 1/clean','{"resizer": 2}','done',1000000032.02,1000000032.02,'');
INSERT INTO "intents" VALUES(3,'ask the launcher','job 1/expand','{"name": "penstock-1-0daaeadde87a", "nodes": 2}','done',1000000037.52,1000000037.52,'');
INSERT INTO "intents" VALUES(4,'ask the launcher','job 1/expand','{"name": "penstock-1-e5ca4dcd60f4", "nodes": 4}','done',1000000065.02,1000000065.02,'');
CREATE TABLE learned (key TEXT PRIMARY KEY, updated REAL NOT NULL, state TEXT NOT NULL);
CREATE TABLE malleable (job INTEGER PRIMARY KEY, ended REAL, state TEXT NOT NULL);
INSERT INTO "malleable" VALUES(1,NULL,'{"job": 1, "uid": 25735, "offer": {"job": 1, "size": 8, "minimum": 1, "maximum": 8, "factor": 2, "preferred": null, "per_node": 1, "nodes": ["n1", "n2", "n7", "n8", "n3", "n4", "n5", "n6"], "method": "merge", "companion": true, "steps_left": null, "step_seconds": null, "target": null, "coming": 0, "errands": true}, "nodes": ["n1", "n2", "n7", "n8", "n3", "n4", "n5", "n6"], "epoch": 4, "started": 1000000000.0, "accepted_at": 1000000070.0, "phase": "idle", "since": 1000000076.0, "origin": 4, "target": 0, "target_nodes": [], "way": "merge", "resizer_name": "", "resizer": null, "companions": [{"name": "penstock-1-0daaeadde87a", "job": 4, "nodes": ["n7", "n8"], "since": 1000000041.02}, {"name": "penstock-1-e5ca4dcd60f4", "job": 5, "nodes": ["n3", "n4", "n5", "n6"], "since": 1000000066.52}], "start_size": 2, "patience": 40.0, "extend": 0.0, "owed": 0.0, "failures": 0, "beneficiary": null, "announced": null, "marks": {"decided": 1000000065.02, "granted": 1000000066.02, "joined": 1000000066.52, "accepted": 1000000070.0, "done": 1000000076.0, "app_spawn": 6.0}, "note": ""}');
CREATE TABLE messages (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL, channel TEXT NOT NULL, at REAL NOT NULL, event TEXT NOT NULL,
        state TEXT NOT NULL DEFAULT 'open', tries INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL, closed REAL,
        outcome TEXT NOT NULL DEFAULT '', UNIQUE (key, channel));
CREATE TABLE resizes (
        id INTEGER PRIMARY KEY, job INTEGER NOT NULL, epoch INTEGER NOT NULL, kind TEXT NOT NULL,
        old_size INTEGER NOT NULL, new_size INTEGER NOT NULL, outcome TEXT NOT NULL, finished REAL NOT NULL,
        marks TEXT NOT NULL, uid INTEGER, nodes INTEGER);
INSERT INTO "resizes" VALUES(1,1,1,'expand',2,8,'completed',1000000018.0,'{"decided": 1000000004.02, "granted": 1000000008.02, "joined": 1000000008.52, "accepted": 1000000012.0, "done": 1000000018.0, "app_spawn": 6.0}',25735,6);
INSERT INTO "resizes" VALUES(2,1,2,'shrink',8,2,'completed',1000000032.52,'{"decided": 1000000023.02, "accepted": 1000000026.0, "done": 1000000032.0, "app_spawn": 6.0, "released": 1000000032.52}',25735,6);
INSERT INTO "resizes" VALUES(3,1,3,'expand',2,4,'completed',1000000050.0,'{"decided": 1000000037.52, "announced": 1000000037.52, "granted": 1000000040.52, "joined": 1000000041.02, "accepted": 1000000044.0, "done": 1000000050.0, "app_spawn": 6.0}',25735,2);
INSERT INTO "resizes" VALUES(4,1,4,'expand',4,8,'completed',1000000076.0,'{"decided": 1000000065.02, "granted": 1000000066.02, "joined": 1000000066.52, "accepted": 1000000070.0, "done": 1000000076.0, "app_spawn": 6.0}',25735,4);
CREATE TABLE runs (
        id INTEGER PRIMARY KEY, uid INTEGER NOT NULL, created REAL NOT NULL, finished REAL, state TEXT NOT NULL, kind TEXT NOT NULL DEFAULT 'workflow');
CREATE TABLE waits (id INTEGER PRIMARY KEY, at REAL NOT NULL, key TEXT NOT NULL, estimate REAL, wait REAL NOT NULL,
        censored INTEGER NOT NULL, bound REAL);
CREATE INDEX intents_open ON intents (state) WHERE state = 'open';
CREATE INDEX decisions_subject ON decisions (subject, id);
CREATE INDEX waits_key ON waits (key, id);
COMMIT;
