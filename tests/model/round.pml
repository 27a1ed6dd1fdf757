/* The synchronous round on two servers: ps/0 decides, ps/1 follows by a link that may break; workers crash or lose
 * their lease, and come back with a new life. What is checked, for every order of all this:
 *
 *   - an update is executed only where all its gradients have been received, all from the version before it;
 *   - no push is in two updates, or is refused after it was in one; servers give it the same outcome and version;
 *   - a round has min(K, live workers) gradients, one of each worker;
 *   - every worker is answered in the end (no invalid end state), and then the servers agree and hold nothing more.
 *
 * The model is of ps/log/sequencer_state.cc, ps/policy/sync_policy.cc, ps/shard/shard.cc, ps/log/ledger.cc and of how
 * ps/rpc/follow.cc subscribes again; names are theirs. A message takes any time. An answer is modelled as what its
 * server knows: the worker reads it at any later time, which covers answers that are lost and asked for again.
 */
#ifndef W
#define W 2       /* workers */
#endif
#ifndef K
#define K W       /* replicas_to_aggregate */
#endif
#ifndef VERSIONS
#define VERSIONS 2 /* the job's last version */
#endif
#ifndef LOSSES
#define LOSSES 1  /* workers that crash or are taken for dead */
#endif
#ifndef BREAKS
#define BREAKS 1  /* times that the link breaks */
#endif
#ifndef REPEATS
#define REPEATS 1 /* pushes that are sent again to a server */
#endif

#define LIVES (1 + LOSSES) /* of a worker */
#define ENTRIES 24
#define X(w, l) ((w) * LIVES + (l))
#define Y(s, w, l) ((s) * W * LIVES + X(w, l))

#define NONE 0
#define ACCEPTED 1
#define STALE 2
#define REJECTED 3
#define FINISHED 4

/* --- Each server: its shard and ledger. [Y]: of one life of one worker, at one server --- */
byte version[2];
byte held[2 * W * LIVES];       /* step of the push that is staged; 0 none */
byte heldBase[2 * W * LIVES];
byte decided[2 * W * LIVES];    /* the last step that was decided */
byte outcome[2 * W * LIVES];    /* of it */
byte after[2 * W * LIVES];      /* the version after it */
byte next[2] = 1;               /* index of the next entry to execute; next[0] is not used */
byte newest[2 * W];             /* the newest life that pushed */

/* --- ps/0: the sequencer and its policy --- */
byte life[W];                   /* that joined last */
bool member[W];
bool heardOf[W];
byte reported[W * LIVES];       /* bit s: server s has the step that is under way; [X] */
byte lastStep[W * LIVES];       /* that the policy heard of */
bool staged[W];                 /* in the open round */
byte stagedStep[W];
byte base[W * LIVES];           /* of the push under way */
typedef Entry { byte kind; byte ofLife[W]; byte ofStep[W]; byte toVersion; byte why };
Entry entries[ENTRIES];         /* kind 1: Apply, 2: Refuse; a worker takes part where ofStep is not 0 */
byte written = 1;               /* index of the next entry to write */

/* --- The link --- */
bool linked = true;
chan log = [ENTRIES] of { byte };                 /* indices of entries */
chan reports = [8] of { byte, byte, byte };       /* worker, life, step */
byte breaks = BREAKS, losses = LOSSES, repeats = REPEATS;

/* --- Workers --- */
bool onTheWay[2 * W * LIVES];   /* a push to that server */
byte step[W * LIVES];           /* of the push under way, or the last */
bool alive[W * LIVES];
bool mayStart[W * LIVES];       /* the life may begin */
byte ended = 0;                 /* lives that are over, or never begin */

/* scratch, always 0 between steps */
byte i, j, n, size;

inline Settle(s, w, l, st, what) {
  if
  :: st > decided[Y(s, w, l)] ->
    decided[Y(s, w, l)] = st; outcome[Y(s, w, l)] = what; after[Y(s, w, l)] = version[s]
  :: else -> assert(what != ACCEPTED) /* decided before: nothing can be in two updates */
  fi;
  if
  :: held[Y(s, w, l)] == st -> held[Y(s, w, l)] = 0; heldBase[Y(s, w, l)] = 0
  :: else
  fi
}

inline Execute(s, e) {
  if
  :: entries[e].kind == 1 ->
    assert(entries[e].toVersion == version[s] + 1);
    i = 0;
    do
    :: i < W ->
      if
      :: entries[e].ofStep[i] > 0 ->
        assert(held[Y(s, i, entries[e].ofLife[i])] == entries[e].ofStep[i]);
        assert(heldBase[Y(s, i, entries[e].ofLife[i])] == version[s])
      :: else
      fi;
      i++
    :: else -> break
    od;
    version[s]++
  :: else
  fi;
  i = 0;
  do
  :: i < W ->
    if
    :: entries[e].ofStep[i] > 0 -> Settle(s, i, entries[e].ofLife[i], entries[e].ofStep[i], entries[e].why)
    :: else
    fi;
    i++
  :: else -> break
  od;
  i = 0
}

/* entries[written] is complete: ps/0 executes it now, ps/1 when it arrives. */
inline Write() {
  Execute(0, written);
  if
  :: linked -> log!written
  :: else
  fi;
  written++;
  assert(written < ENTRIES)
}

inline Refuse(w, l, st, what) {
  entries[written].kind = 2;
  entries[written].ofLife[w] = l;
  entries[written].ofStep[w] = st;
  entries[written].why = what;
  Write()
}

inline CloseRoundIfComplete() {
  n = 0; size = 0; j = 0;
  do
  :: j < W -> n = n + staged[j]; size = size + member[j]; j++
  :: else -> break
  od;
  if
  :: size > K -> size = K
  :: else
  fi;
  j = 0;
  do
  :: j < W && heardOf[j] -> j++
  :: else -> break
  od;
  if
  :: j == W && size > 0 && n >= size ->
    entries[written].kind = 1;
    entries[written].toVersion = version[0] + 1;
    entries[written].why = ACCEPTED;
    n = 0; j = 0;
    do
    :: j < W ->
      if
      :: staged[j] && n < size ->
        assert(member[j]);
        entries[written].ofLife[j] = life[j];
        entries[written].ofStep[j] = stagedStep[j];
        staged[j] = false; stagedStep[j] = 0; n++
      :: else
      fi;
      j++
    :: else -> break
    od;
    assert(n == size);
    Write();
    j = 0;
    do /* more than enough, which only the first round can have */
    :: j < W ->
      if
      :: staged[j] -> staged[j] = false; Refuse(j, life[j], stagedStep[j], STALE); stagedStep[j] = 0
      :: else
      fi;
      j++
    :: else -> break
    od
  :: else
  fi;
  j = 0; n = 0; size = 0
}

/* Drops the pushes of the worker's present life. */
inline DropAll(w) {
  if
  :: reported[X(w, life[w])] > 0 ->
    reported[X(w, life[w])] = 0;
    Refuse(w, life[w], step[X(w, life[w])], REJECTED)
  :: else
  fi;
  if
  :: staged[w] -> staged[w] = false; Refuse(w, life[w], stagedStep[w], REJECTED); stagedStep[w] = 0
  :: else
  fi
}

inline Join(w, l) {
  DropAll(w);
  life[w] = l; member[w] = true; heardOf[w] = true;
  CloseRoundIfComplete()
}

inline Leave(w) {
  member[w] = false; heardOf[w] = true;
  DropAll(w);
  CloseRoundIfComplete()
}

inline OnStaged(s, w, l, st) {
  if
  :: l != life[w] || !member[w] -> Refuse(w, l, st, REJECTED)
  :: else ->
    if
    :: st <= lastStep[X(w, l)] /* a repeat: its decision is in the log */
    :: else ->
      reported[X(w, l)] = reported[X(w, l)] | (1 << s);
      if
      :: reported[X(w, l)] == 3 ->
        reported[X(w, l)] = 0; lastStep[X(w, l)] = st;
        if
        :: version[0] == VERSIONS -> Refuse(w, l, st, FINISHED)
        :: version[0] < VERSIONS && base[X(w, l)] != version[0] -> Refuse(w, l, st, STALE)
        :: else ->
          assert(!staged[w]); staged[w] = true; stagedStep[w] = st;
          CloseRoundIfComplete()
        fi
      :: else
      fi
    fi
  fi
}

/* A push is complete at a server. */
inline Arrive(s, w, l) {
  onTheWay[Y(s, w, l)] = false;
  if
  :: l < newest[s * W + w] ->
    /* a newer life has pushed here: the push is refused. The old life is over. */
    assert(!alive[X(w, l)] || life[w] != l)
  :: l >= newest[s * W + w] && step[X(w, l)] <= decided[Y(s, w, l)] /* answered as before */
  :: l >= newest[s * W + w] && step[X(w, l)] > decided[Y(s, w, l)] && held[Y(s, w, l)] > 0 /* under way */
  :: else ->
    newest[s * W + w] = l;
    held[Y(s, w, l)] = step[X(w, l)]; heldBase[Y(s, w, l)] = base[X(w, l)];
    if
    :: s == 0 -> OnStaged(0, w, l, step[X(w, l)])
    :: s == 1 && linked -> reports!w, l, step[X(w, l)]
    :: else /* said again after the next subscription */
    fi
  fi
}

proctype Life(byte w; byte l) {
endBeforeLife:
  mayStart[X(w, l)];
  d_step { alive[X(w, l)] = true; Join(w, l) }
  /* The values of a marker in the log: of one version on both servers. */
  d_step { base[X(w, l)] = version[0] }
  do
  :: base[X(w, l)] < VERSIONS && alive[X(w, l)] ->
    d_step {
      if
      :: alive[X(w, l)] -> step[X(w, l)]++; onTheWay[Y(0, w, l)] = true; onTheWay[Y(1, w, l)] = true
      :: else
      fi
    }
    if
    :: !alive[X(w, l)]
    :: d_step {
        alive[X(w, l)] && decided[Y(0, w, l)] == step[X(w, l)] && decided[Y(1, w, l)] == step[X(w, l)] ->
        assert(outcome[Y(0, w, l)] == outcome[Y(1, w, l)]);
        assert(outcome[Y(0, w, l)] == REJECTED || after[Y(0, w, l)] == after[Y(1, w, l)]);
        if
        :: outcome[Y(0, w, l)] == REJECTED -> alive[X(w, l)] = false /* its lease was lost: it starts again */
        :: else -> base[X(w, l)] = after[Y(0, w, l)]
        fi
      }
    fi
  :: else -> break
  od;
  skip;
  d_step {
    if
    :: alive[X(w, l)] -> /* it has seen the last version, and leaves */
      alive[X(w, l)] = false;
      if
      :: member[w] && life[w] == l -> Leave(w)
      :: else
      fi;
      ended = ended + LIVES - l
    :: else ->
      ended++;
      if
      :: l + 1 < LIVES -> mayStart[X(w, l + 1)] = true
      :: else
      fi
    fi
  }
end:
  false
}

#define MESSAGE(s, w, l) \
  :: d_step { onTheWay[Y(s, w, l)] -> Arrive(s, w, l) } \
  :: d_step { onTheWay[Y(s, w, l)] && !alive[X(w, l)] -> onTheWay[Y(s, w, l)] = false } \
  :: d_step { repeats > 0 && alive[X(w, l)] && step[X(w, l)] > 0 && !onTheWay[Y(s, w, l)] -> \
              repeats--; onTheWay[Y(s, w, l)] = true }

#define WORKER(w, l) \
  MESSAGE(0, w, l) MESSAGE(1, w, l) \
  /* It crashes. */ \
  :: d_step { losses > 0 && alive[X(w, l)] -> losses--; alive[X(w, l)] = false } \
  /* Its lease runs out, as it is dead, or though it lives. */ \
  :: d_step { member[w] && life[w] == l && !alive[X(w, l)] -> Leave(w) } \
  :: d_step { losses > 0 && member[w] && life[w] == l && alive[X(w, l)] -> losses--; Leave(w) }

active proctype World() {
  byte w, l, st, e;
  d_step {
    w = 0;
    do
    :: w < W -> mayStart[X(w, 0)] = true; w++
    :: else -> break
    od;
    w = 0
  }
end:
  do
  WORKER(0, 0) WORKER(0, 1)
  WORKER(1, 0) WORKER(1, 1)
#if W > 2
  WORKER(2, 0) WORKER(2, 1)
#endif
  :: d_step { log?e -> assert(e == next[1]); Execute(1, e); next[1]++; e = 0 }
  :: d_step { reports?w, l, st -> OnStaged(1, w, l, st); w = 0; l = 0; st = 0 }
  :: d_step { breaks > 0 && linked ->
      breaks--; linked = false;
      do
      :: nempty(log) -> log?e
      :: nempty(reports) -> reports?w, l, st
      :: empty(log) && empty(reports) -> break
      od;
      e = 0; w = 0; l = 0; st = 0 }
  /* A new subscription, from where the follower stands; it says again what it holds undecided. */
  :: d_step { !linked ->
      linked = true;
      e = next[1];
      do
      :: e < written -> log!e; e++
      :: else -> break
      od;
      e = 0;
      do
      :: w < W ->
        l = 0;
        do
        :: l < LIVES ->
          if
          :: held[Y(1, w, l)] > 0 -> reports!w, l, held[Y(1, w, l)]
          :: else
          fi;
          l++
        :: else -> break
        od;
        w++
      :: else -> break
      od;
      w = 0; l = 0 }
  od
}

/* When nothing moves any more. */
active proctype Judge() {
  byte y;
  timeout;
  assert(linked && next[1] == written && version[0] == version[1]);
  do
  :: y < 2 * W * LIVES -> assert(held[y] == 0); y++
  :: else -> break
  od;
  assert(ended >= W); /* every worker has come to an end: none waits for an answer */
  y = 0;
  do
  :: y < W -> assert(!member[y]); y++
  :: else -> break
  od
}

init {
  atomic {
    run Life(0, 0); run Life(0, 1);
    run Life(1, 0); run Life(1, 1);
#if W > 2
    run Life(2, 0); run Life(2, 1);
#endif
  }
}
