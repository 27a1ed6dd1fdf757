/* Rows of tables on a server that has a backup: pushes with a gradient of the variables and gradients of rows, answers
 * with the rows that the next batch needs, and servers that are killed. What is checked, for every order of all this:
 *
 *   - a gradient is in the variables and in the rows after the same update, once (nothing is lost or doubled);
 *   - the rows that a worker gets with an answer, or reads later, are those of the version that its next batch uses;
 *   - what a worker has been told survives the loss of a server whose backup was in sync;
 *   - a state that is sent to a new backup has variables and rows of one version;
 *   - every worker gets all its answers (no invalid end state).
 *
 * The model is of one shard of a synchronous job with all its workers: client/training/step_pushes.cc,
 * ps/shard/open_push.cc, ps/shard/log_executor.cc, ps/log/ledger.cc, ps/replication/replicator.cc and
 * ps/replication/shard_backup.cc. How two servers agree on a round is in round.pml. If the job would be rolled back to
 * a checkpoint, the model ends.
 */
#ifndef W
#define W 2        /* workers */
#endif
#ifndef VERSIONS
#define VERSIONS 2 /* the job's last version */
#endif
#ifndef KILLS
#define KILLS 2    /* servers that are killed */
#endif
#ifndef STARTS
#define STARTS 1   /* servers that are started again, as backups */
#endif
#ifndef BREAKS
#define BREAKS 1   /* streams of workers that break */
#endif
/* For tests of the model itself: 1 leaves out one rule, and a check must fail. */
#ifndef EARLY_ANSWERS
#define EARLY_ANSWERS 0 /* answers do not wait for the backup */
#endif
#ifndef SEPARATE_ROWS
#define SEPARATE_ROWS 0 /* a push is staged when the gradient of the variables is there, with or without that of rows */
#endif
#ifndef NO_LEDGER
#define NO_LEDGER 0     /* a push that was decided is taken again */
#endif

#define GRADIENTS (W * VERSIONS)
#define G(w, v) ((w) * VERSIONS + (v)) /* the gradient of worker w at version v */
#define AT(s, w) ((s) * W + (w))
#define OF(s, g) ((s) * GRADIENTS + (g))

/* --- Each server --- */
bool up[2] = true;
byte version[2];
byte variables[2 * GRADIENTS]; /* how often each gradient is in the variables; [OF] */
byte rows[2 * GRADIENTS];      /* and in the rows */
byte decided[2 * W];           /* ledger: the last step that is decided; [AT] */
byte after[2 * W];             /* the version after it */

/* --- The primary --- */
byte primary = 0;
bool gotVariables[W], gotRows[W]; /* frames of the push under way */
bool staged[W];
bool stagedRows[W];               /* with the gradients of rows */
byte phase = 0;                   /* of an update: 1 the mean of the variables is sent, 2 that of the rows */
bool attached = true;             /* items are sent to the backup */
bool inSync = true;               /* answers wait for the backup */
byte sent, acked;                 /* items */
byte answerAt[W];                 /* the answer waits until so many items are acknowledged */
bool withRows[W];                 /* the answer has the wanted rows, as they were after the decision */
byte rowsVersion[W];

/* --- The backup --- */
bool complete = true;             /* it may be promoted */
bool meanOfVariables, meanOfRows; /* that have come for the next update */
byte processed;                   /* items */
mtype = { MEAN, ROW_MEAN, APPLY, STATE, ROW_STATE, IN_SYNC };
chan items = [8] of { mtype };
/* A state on its way to a new backup. */
byte stateVersion, stateVariables[GRADIENTS], stateRows[GRADIENTS], stateDecided[W], stateAfter[W];
byte stateAt;                     /* the backup has it when so many items are acknowledged */
byte entrySteps[VERSIONS * W];    /* of the entry that makes the update of a version: the steps of its pushes */
bool lost = false;                /* the job is rolled back to a checkpoint */

/* --- Workers --- */
byte base[W], step[W];
/* 1: the push is to be sent; 2: it is; 3: the rows are to be read; 4: they are on their way; 0: no step under way */
byte doing[W];
byte learned[W];                  /* the version of the answer, while rows are read */
byte readVersion[W], readAt[W];
byte kills = KILLS, starts = STARTS, breaks = BREAKS;

byte i; /* scratch, always 0 between steps */

/* Rows and variables of server s have the gradients of all updates before its version, once, and no others. */
inline CheckValues(s) {
  i = 0;
  do
  :: i < GRADIENTS ->
    assert(variables[OF(s, i)] == (i % VERSIONS < version[s]));
    assert(rows[OF(s, i)] == (i % VERSIONS < version[s]));
    i++
  :: else -> break
  od;
  i = 0
}

/* The update to the next version, at server s, of all workers. */
inline Apply(s, withRowsOf) {
  i = 0;
  do
  :: i < W ->
    variables[OF(s, G(i, version[s]))]++;
    if
    :: withRowsOf -> rows[OF(s, G(i, version[s]))]++
    :: else
    fi;
    decided[AT(s, i)] = entrySteps[version[s] * W + i];
    i++
  :: else -> break
  od;
  version[s]++;
  i = 0;
  do
  :: i < W -> after[AT(s, i)] = version[s]; i++
  :: else -> break
  od;
  i = 0
}

inline Send(item) {
  if
  :: attached -> items!item; sent++
  :: else
  fi
}

#define REVEALED(at) (EARLY_ANSWERS || !inSync || acked >= (at))
/* Every worker has a complete push at the primary. */
#define ROUND_COMPLETE (staged[0] && staged[W - 1] && staged[W / 2])

inline DropPush(w) {
  gotVariables[w] = false; gotRows[w] = false;
  staged[w] = false; stagedRows[w] = false;
  withRows[w] = false; rowsVersion[w] = 0; answerAt[w] = 0
}

/* The worker's stream ends: it sends the push again, or reads again. */
inline Break(w) {
  gotVariables[w] = false; gotRows[w] = false; withRows[w] = false; rowsVersion[w] = 0;
  if
  :: doing[w] == 2 -> doing[w] = 1
  :: doing[w] == 4 -> doing[w] = 3; readVersion[w] = 0; readAt[w] = 0
  :: else
  fi
}

inline FinishStep(w, toVersion) {
  assert(toVersion == base[w] + 1);
  base[w] = toVersion; doing[w] = 0; learned[w] = 0; readVersion[w] = 0; readAt[w] = 0;
  DropPush(w)
}

#define WORKER(w) \
  :: d_step { doing[w] == 0 && base[w] < VERSIONS -> step[w]++; doing[w] = 1 } \
  /* The frames of a push, in any order; the End comes after them. */ \
  :: d_step { doing[w] == 1 && up[primary] -> doing[w] = 2 } \
  :: d_step { doing[w] == 2 && up[primary] && !gotVariables[w] -> gotVariables[w] = true } \
  :: d_step { doing[w] == 2 && up[primary] && !gotRows[w] -> gotRows[w] = true } \
  :: d_step { doing[w] == 2 && up[primary] && gotVariables[w] && (gotRows[w] || SEPARATE_ROWS) && !staged[w] && \
              (decided[AT(primary, w)] < step[w] || (NO_LEDGER && withRows[w] == false && breaks == 0)) -> \
      assert(base[w] == version[primary]); staged[w] = true; stagedRows[w] = gotRows[w] } \
  /* The answer: with rows, or, if the push had been decided before, without. */ \
  :: d_step { doing[w] == 2 && up[primary] && gotVariables[w] && gotRows[w] && decided[AT(primary, w)] == step[w] && \
              !staged[w] && REVEALED(answerAt[w]) -> \
      if \
      :: withRows[w] -> assert(rowsVersion[w] == after[AT(primary, w)]); FinishStep(w, after[AT(primary, w)]) \
      :: else -> learned[w] = after[AT(primary, w)]; doing[w] = 3; DropPush(w) \
      fi } \
  :: d_step { doing[w] == 3 && up[primary] && phase == 0 -> \
      CheckValues(primary); readVersion[w] = version[primary]; readAt[w] = sent; doing[w] = 4 } \
  :: d_step { doing[w] == 4 && up[primary] && REVEALED(readAt[w]) -> \
      assert(readVersion[w] == learned[w]); FinishStep(w, learned[w]) } \
  :: d_step { breaks > 0 && doing[w] != 0 && doing[w] != 1 && doing[w] != 3 -> breaks--; Break(w) }

active proctype World() {
end:
  do
  :: d_step { lost -> assert(true) } -> break
  WORKER(0)
#if W > 1
  WORKER(1)
#endif
#if W > 2
  WORKER(2)
#endif
  /* An update: the means go to the backup, then the primary applies them. */
  :: d_step { up[primary] && phase == 0 && ROUND_COMPLETE && nfull(items) ->
      do
      :: i < W -> entrySteps[version[primary] * W + i] = step[i]; i++
      :: else -> break
      od;
      i = 0;
      Send(MEAN); phase = 1 }
  :: d_step { up[primary] && phase == 1 && nfull(items) -> Send(ROW_MEAN); phase = 2 }
  :: d_step { up[primary] && phase == 2 && nfull(items) ->
      Send(APPLY);
      Apply(primary, stagedRows[0] && stagedRows[W - 1]);
      CheckValues(primary);
      do
      :: i < W ->
        staged[i] = false; stagedRows[i] = false; answerAt[i] = sent;
        /* The wanted rows, before the next entry of the log, for pushes whose streams are open. */
        withRows[i] = gotVariables[i] && gotRows[i] && doing[i] == 2;
        rowsVersion[i] = (withRows[i] -> version[primary] : 0);
        i++
      :: else -> break
      od;
      i = 0; phase = 0 }
  /* The backup. */
  :: d_step { up[1 - primary] && items?[MEAN] -> items?MEAN; meanOfVariables = true; processed++ }
  :: d_step { up[1 - primary] && items?[ROW_MEAN] -> items?ROW_MEAN; meanOfRows = true; processed++ }
  :: d_step { up[1 - primary] && items?[APPLY] ->
      items?APPLY;
      assert(meanOfVariables && meanOfRows);
      Apply(1 - primary, true);
      CheckValues(1 - primary);
      meanOfVariables = false; meanOfRows = false; processed++ }
  :: d_step { up[1 - primary] && items?[STATE] ->
      items?STATE;
      version[1 - primary] = stateVersion;
      do
      :: i < GRADIENTS -> variables[OF(1 - primary, i)] = stateVariables[i]; i++
      :: else -> break
      od;
      i = 0;
      do
      :: i < W -> decided[AT(1 - primary, i)] = stateDecided[i]; after[AT(1 - primary, i)] = stateAfter[i]; i++
      :: else -> break
      od;
      i = 0; processed++ }
  :: d_step { up[1 - primary] && items?[ROW_STATE] ->
      items?ROW_STATE;
      do
      :: i < GRADIENTS -> rows[OF(1 - primary, i)] = stateRows[i]; i++
      :: else -> break
      od;
      i = 0;
      CheckValues(1 - primary); processed++ }
  :: d_step { up[1 - primary] && items?[IN_SYNC] -> items?IN_SYNC; complete = true; processed++ }
  :: d_step { up[primary] && up[1 - primary] && acked < processed -> acked = processed }
  /* A new backup: the state of one point between two updates, then every item; answers wait once it is in sync. */
  :: d_step { starts > 0 && up[primary] && !up[1 - primary] && phase == 0 && empty(items) ->
      starts--;
      up[1 - primary] = true; complete = false; processed = 0; sent = 0; acked = 0; attached = true;
      do
      :: i < GRADIENTS ->
        variables[OF(1 - primary, i)] = 0; rows[OF(1 - primary, i)] = 0;
        stateVariables[i] = variables[OF(primary, i)]; stateRows[i] = rows[OF(primary, i)];
        i++
      :: else -> break
      od;
      i = 0;
      do
      :: i < W ->
        decided[AT(1 - primary, i)] = 0; after[AT(1 - primary, i)] = 0;
        stateDecided[i] = decided[AT(primary, i)]; stateAfter[i] = after[AT(primary, i)];
        answerAt[i] = 0; readAt[i] = 0;
        i++
      :: else -> break
      od;
      i = 0;
      version[1 - primary] = 0; stateVersion = version[primary];
      Send(STATE); Send(ROW_STATE); stateAt = sent }
  :: d_step { up[primary] && up[1 - primary] && attached && !inSync && acked >= stateAt && nfull(items) ->
      Send(IN_SYNC); inSync = true }
  /* The primary is killed. What it had sent may arrive, up to any item. */
  :: d_step { kills > 0 && up[primary] && up[1 - primary] ->
      kills--; up[primary] = false; phase = 0;
      do
      :: i < W -> DropPush(i); Break(i); i++
      :: else -> break
      od;
      i = 0 }
  /* A client's Promote: the stream to the backup has ended, at an item. */
  :: d_step { !up[primary] && up[1 - primary] ->
      do
      :: nempty(items) ->
        if
        :: items?MEAN :: items?ROW_MEAN :: items?APPLY :: items?STATE :: items?ROW_STATE :: items?IN_SYNC
        fi
      :: empty(items) -> break
      od;
      if
      :: complete ->
        primary = 1 - primary; attached = false; inSync = false; complete = false;
        meanOfVariables = false; meanOfRows = false; sent = 0; acked = 0; processed = 0
      :: else -> lost = true
      fi }
  /* The backup is killed: the primary continues alone. */
  :: d_step { kills > 0 && up[primary] && up[1 - primary] ->
      kills--; up[1 - primary] = false; attached = false; inSync = false; complete = false;
      meanOfVariables = false; meanOfRows = false;
      do
      :: nempty(items) ->
        if
        :: items?MEAN :: items?ROW_MEAN :: items?APPLY :: items?STATE :: items?ROW_STATE :: items?IN_SYNC
        fi
      :: empty(items) -> break
      od;
      sent = 0; acked = 0; processed = 0 }
  od
}

/* When nothing moves any more. */
active proctype Judge() {
  byte w;
  timeout;
  do
  :: !lost && w < W -> assert(base[w] == VERSIONS && doing[w] == 0); w++
  :: else -> break
  od;
  if
  :: !lost -> d_step { CheckValues(primary) }
  :: else
  fi
}
