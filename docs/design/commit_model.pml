/* Commits, archives, garbage, operators and an erasure, all at once.

   The rules of docs/FORMAT.md, sections 2, 10, 11 and 12, written from that page; commit_model.md says what is left
   out, and why nothing is missed by that. Bounds and rules are set from outside, spin_model.py runs it:

       python docs/design/spin_model.py
       python docs/design/spin_model.py --without compare_archive

   One process, whose every step is a request of one actor. A commit names its snapshot: each is made on one base and
   holds the same bytes whenever it is sent, so that equal commits are equal ETags. What belongs to no rule but makes
   states fewer, one order for actors that are alike and no memory of what nobody reads again, is C at the end. */

#ifndef WRITERS
#define WRITERS 3
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef COLLECTORS
#define COLLECTORS 2
#endif
#ifndef LOST
#define LOST 1          /* answers, or swaps, that are lost */
#endif
#ifndef LATE
#define LATE 1          /* a swap may also arrive after its writer has looked and gone on */
#endif
#ifndef DEEDS
#define DEEDS 1         /* of the operator: puts an older pointer back, or deletes it */
#endif
#ifndef PUT_BACK
#define PUT_BACK 1      /* 0: only deletes it */
#endif
#ifndef REPAIRS
#define REPAIRS 1
#endif
#ifndef ERASURES
#define ERASURES 0
#endif
#ifndef HOURS
#define HOURS 1         /* that may pass, beyond the skew */
#endif
#ifndef SKEW
#define SKEW 1          /* hours that LastModified is behind Date */
#endif
#ifndef BEFORE
#define BEFORE 2        /* versions at the start; all but the last are archived */
#endif

/* Rules, each of which can be left out. */
#ifndef look_after_doubt
#define look_after_doubt 1
#endif
#ifndef ask_the_ledger
#define ask_the_ledger 1
#endif
#ifndef compare_archive
#define compare_archive 1
#endif
#ifndef look_for_successor
#define look_for_successor 1
#endif
#ifndef compare_table_in_look
#define compare_table_in_look 1
#endif
#ifndef create_on_clean_ground
#define create_on_clean_ground 1
#endif
#ifndef repair_archives_first
#define repair_archives_first 1
#endif
#ifndef archive_before_swap
#define archive_before_swap 1
#endif
#ifndef swap_on_condition
#define swap_on_condition 1
#endif
#ifndef refuse_old_uploads
#define refuse_old_uploads 1
#endif
#ifndef roots_after_boundary
#define roots_after_boundary 1
#endif
#ifndef margin_of_clocks
#define margin_of_clocks 1
#endif
#ifndef collect_nothing_when_back
#define collect_nothing_when_back 1
#endif
#ifndef archive_boundary
#define archive_boundary 1
#endif
#ifndef erasure_moves_boundary
#define erasure_moves_boundary 1
#endif

/* Commits by number. 0 is none; a file has the number of the attempt that uploaded it. */
#define FIRST_W (BEFORE + 1)
#define OF(n, attempt) (FIRST_W + (n) * ATTEMPTS + (attempt))
#define FIRST_B (FIRST_W + WRITERS * ATTEMPTS)
#define FIRST_R (FIRST_B + COLLECTORS)
#define CREATED (FIRST_R + REPAIRS)
#define ERASURE (CREATED + 1)
#define COMMITS (ERASURE + 1)
#define VERSIONS (BEFORE + WRITERS * ATTEMPTS + COLLECTORS + REPAIRS + 4)
#define LAST_HOUR (1 + SKEW + HOURS)

/* A snapshot. */
typedef Commit {
  byte base;            /* the commit it was made on */
  byte version;
  byte boundary;        /* the hour of the garbage boundary */
  byte oldest;          /* version that has not expired */
  byte file;            /* that it adds */
  bit created;          /* the table is one that was created where another had been */
  bit stalled           /* ghost: its base was put back while its swap was about to be sent, or on its way */
};
Commit commit[COMMITS];
byte hour = 1 + SKEW;
byte pointer = BEFORE;
byte archive[VERSIONS];
byte uploaded[COMMITS]; /* the hour of a file; LastModified may be SKEW before it */
bit here[COMMITS];      /* the file is in the store */
bit on_its_way[COMMITS];/* the swap for this commit */

/* Where a writer is, and a collector: what it does next. */
#define LOAD 0
#define ARCHIVE 1
#define SUCCESSOR 2
#define DOUBT 3
#define SWAP 4
#define LOOK 5
#define ACKNOWLEDGED 6
#define ENDED 7
#define BOUNDARY 0
#define OWN_ARCHIVE 1
#define ROOTS 2
#define DONE 3
typedef Writer { byte at; byte base; byte file; byte attempt; bit tried; bit landed; bit stalled };
Writer writer[WRITERS];

typedef Collector { byte at; byte boundary; byte base; int roots };
Collector collector[COLLECTORS + 1];

byte lost = LOST, deeds = DEEDS, repairs = REPAIRS, erasures = ERASURES;
byte repairing;         /* the commit of a repair that is about to be swapped in */
byte repaired;          /* the pointer that it has read */
byte erased_at;
bit touched;            /* ghost: an operator has taken versions away */
bit unmended;           /* ghost: and nobody has repaired that since */
bit alone;              /* ghost: the version after the pointer's was in the pointer alone when it was overwritten */

hidden byte c, v, x, n; /* of one step */
hidden byte found, holds;

/* The commit of version `which` that `from` goes back to, in x; 0 if there is none. */
inline ancestor(from, which) {
  x = from;
  do
  :: x && commit[x].version > which -> x = commit[x].base
  :: else -> break
  od;
  if :: x && commit[x].version != which -> x = 0 :: else fi
}

/* Who is about to swap these bytes out will find their ETag. */
inline came_back() {
  if :: archive[commit[pointer].version + 1] == 0 -> alone = 1 :: else fi;
  c = 0;
  do
  :: c < WRITERS ->
     if
     :: writer[c].base == pointer && (writer[c].at == SWAP || writer[c].at == LOOK) -> writer[c].stalled = 1
     :: else
     fi;
     c++
  :: else -> break
  od;
  c = 1;
  do
  :: c < COMMITS -> if :: on_its_way[c] && commit[c].base == pointer -> commit[c].stalled = 1 :: else fi; c++
  :: else -> break
  od
}

inline make(which, on) {
  commit[which].base = on;
  commit[which].version = commit[on].version + 1;
  commit[which].boundary = commit[on].boundary;
  commit[which].oldest = commit[on].oldest;
  commit[which].created = commit[on].created
}

#define ALIEN(a, b) (compare_table_in_look && commit[a].created != commit[b].created)

/* -- a writer: an append under a request id (section 10) ------------------------------------------------------- */

inline again(w) {
  if
  :: writer[w].attempt + 1 >= ATTEMPTS -> writer[w].at = ENDED
  :: else ->
     writer[w].at = LOAD; writer[w].attempt = writer[w].attempt + 1;
     writer[w].base = 0; writer[w].tried = 0; writer[w].stalled = 0
  fi
}

inline do_load(w) { /* and upload, if there is nothing yet; then plan */
  found = 0; x = pointer;
  do
  :: x -> if :: x >= OF(w, 0) && x <= OF(w, ATTEMPTS - 1) -> found = 1 :: else fi; x = commit[x].base
  :: else -> break
  od;
  if
  :: pointer == 0 -> writer[w].at = ENDED
  :: pointer && found && ask_the_ledger -> writer[w].at = ACKNOWLEDGED
  :: else ->
     writer[w].base = pointer; writer[w].tried = 0;
     if
     :: writer[w].file == 0 ->
        x = OF(w, writer[w].attempt); writer[w].file = x; uploaded[x] = hour; here[x] = 1
     :: else
     fi;
     if
     :: refuse_old_uploads && uploaded[writer[w].file] < commit[pointer].boundary -> writer[w].file = 0; again(w)
     :: else -> if :: archive_before_swap -> writer[w].at = ARCHIVE :: else -> writer[w].at = SWAP fi
     fi
  fi
}

inline do_archive(w) {
  v = commit[writer[w].base].version; x = archive[v];
  if
  :: x == 0 -> archive[v] = writer[w].base; writer[w].at = SWAP
  :: x && !compare_archive -> writer[w].at = SWAP
  :: x && compare_archive && x != writer[w].base -> writer[w].at = DOUBT
  :: x && compare_archive && x == writer[w].base ->
     if :: look_for_successor -> writer[w].at = SUCCESSOR :: else -> writer[w].at = SWAP fi
  fi
}

inline do_successor(w) {
  if
  :: archive[commit[writer[w].base].version + 1] -> writer[w].at = DOUBT
  :: else -> writer[w].at = SWAP
  fi
}

inline do_doubt(w) { /* the table moved on, or there are archives of another history */
  if :: pointer == writer[w].base -> writer[w].at = ENDED :: else -> again(w) fi
}

inline send(w) { /* in n: the commit */
  n = OF(w, writer[w].attempt);
  make(n, writer[w].base);
  commit[n].file = writer[w].file;
  commit[n].stalled = writer[w].stalled
}

inline land(w) {
  pointer = n; writer[w].landed = 1;
  if :: commit[n].stalled -> came_back() :: else fi
}

#define FITS(base) (pointer == (base) || (!swap_on_condition && pointer))

inline do_swap(w) {
  if
  :: FITS(writer[w].base) -> send(w); land(w); writer[w].at = ACKNOWLEDGED
  :: else -> writer[w].at = LOOK
  fi
}

inline do_look(w) { /* did my commit land? */
  x = writer[w].base; v = commit[x].version + 1; n = OF(w, writer[w].attempt); c = archive[v];
  if
  :: !look_after_doubt -> again(w)
  :: else ->
     if
     :: pointer == 0 || ALIEN(pointer, x) || commit[pointer].version < v - 1 -> writer[w].at = ENDED
     :: else ->
        if
        :: pointer == x && writer[w].tried -> writer[w].at = ENDED
        :: pointer == x && !writer[w].tried -> writer[w].tried = 1; writer[w].at = SWAP
        :: pointer != x && commit[pointer].version < v -> writer[w].at = ENDED
        :: commit[pointer].version == v && pointer == n -> writer[w].at = ACKNOWLEDGED
        :: commit[pointer].version == v && pointer != n -> again(w)
        :: commit[pointer].version > v ->
           if
           :: c == 0 || ALIEN(c, x) || v < commit[pointer].oldest -> writer[w].at = ENDED
           :: else -> if :: c == n -> writer[w].at = ACKNOWLEDGED :: else -> again(w) fi
           fi
        fi
     fi
  fi
}

/* -- commits of others, as one step: how commits race is what the writers are for -------------------------------- */

#define REFUSED (compare_archive && look_for_successor && archive[commit[pointer].version] \
  && (archive[commit[pointer].version] != pointer || archive[commit[pointer].version + 1]))

inline commit_at_once(which) {
  v = commit[pointer].version;
  if :: archive[v] == 0 -> archive[v] = pointer :: else fi;
  make(which, pointer);
  pointer = which
}

/* -- a collector (section 11) ---------------------------------------------------------------------------------- */

inline read_roots(g) {
  collector[g].roots = 0; x = pointer;
  do
  :: x -> if :: commit[x].file -> collector[g].roots = collector[g].roots | (1 << commit[x].file) :: else fi; x = commit[x].base
  :: else -> break
  od
}

inline commit_boundary(g) {
  commit_at_once(FIRST_B + g);
  if :: hour > commit[pointer].boundary -> commit[pointer].boundary = hour :: else fi;
  collector[g].boundary = hour; collector[g].base = pointer;
  if :: archive_boundary -> collector[g].at = OWN_ARCHIVE :: else -> collector[g].at = ROOTS fi
}

inline archive_own(g) {
  v = commit[collector[g].base].version;
  if
  :: archive[v] == 0 -> archive[v] = collector[g].base; collector[g].at = ROOTS
  :: archive[v] && archive[v] == collector[g].base -> collector[g].at = ROOTS
  :: else -> collector[g].at = DONE
  fi
}

inline delete_garbage(g) {
  x = collector[g].base; v = commit[pointer].version + 1; found = 0;
  do
  :: v < VERSIONS -> if :: archive[v] -> found = 1 :: else fi; v++
  :: else -> break
  od;
  if :: commit[x].version >= commit[pointer].version && x != pointer -> found = 1 :: else fi;
  if
  :: found && collect_nothing_when_back
  :: else ->
     if :: roots_after_boundary -> read_roots(g) :: else fi;
     c = FIRST_W;
     do
     :: c < FIRST_B ->
        if
        :: here[c] && !(collector[g].roots & (1 << c)) &&
           uploaded[c] - SKEW < collector[g].boundary - (margin_of_clocks -> SKEW : 0) -> here[c] = 0
        :: else
        fi;
        c++
     :: else -> break
     od
  fi;
  collector[g].at = DONE
}

/* -- an operator ----------------------------------------------------------------------------------------------- */

#define MAY_PUT_BACK(which) (PUT_BACK && deeds && pointer && archive[which] && which < commit[pointer].version \
  && commit[archive[which]].created == commit[pointer].created)

inline put_back(which) {
  deeds--; touched = 1; unmended = 1; pointer = archive[which]; came_back()
}

inline read_for_repair() { /* section 10, 5: the commit, in n, with its archive */
  n = FIRST_R + REPAIRS - repairs;
  v = VERSIONS - 1;
  do :: v && archive[v] == 0 -> v-- :: else -> break od;
  c = archive[v];
  found = 1;
  if
  :: pointer && c ->
     ancestor(c, commit[pointer].version);
     found = x == pointer && (archive[commit[pointer].version] == 0 || archive[commit[pointer].version] == pointer)
  :: else
  fi;
  if
  :: c == 0 || (pointer && (v < commit[pointer].version || c == pointer)) -> skip /* nothing to repair */
  :: else ->
     repairs--; repaired = pointer; repairing = n;
     if
     :: found -> make(n, c)
     :: else -> make(n, pointer); commit[n].version = v + 1; commit[n].oldest = v + 1
     fi;
     commit[n].boundary = hour;
     if :: repair_archives_first -> archive[commit[n].version] = n :: else fi
  fi
}

inline put_repaired() {
  if :: pointer == repaired -> pointer = repairing; touched = 1; unmended = 0 :: else fi;
  repairing = 0; repaired = 0
}

/* -- an erasure of all rows there are (section 12) --------------------------------------------------------------- */

inline erase() {
  erasures--; commit_at_once(ERASURE); erased_at = hour;
  if :: erasure_moves_boundary -> commit[ERASURE].boundary = hour :: else fi
}

/* -- the promises ---------------------------------------------------------------------------------------------- */

#ifndef ONLY
#define ONLY 0          /* one of them, or all */
#endif
#define PROMISE(number, name, holds) if ((ONLY == 0 || ONLY == number) && !(holds)) { printf("broken: %s\n", name); return 0; }

c_code {
static int reaches(int from, int which) {
  while (from && from != which) from = now.commit[from].base;
  return from == which;
}
static int of_writer(int which) { return which >= FIRST_W && which < FIRST_B; }

static int once(void) {
  int w, x, rows;
  for (w = 0; w < WRITERS; w++) {
    for (rows = 0, x = now.pointer; x; x = now.commit[x].base) rows += x >= OF(w, 0) && x <= OF(w, ATTEMPTS - 1);
    if (rows > 1) return 0;
  }
  return 1;
}
/* And nothing is acknowledged that never landed. */
static int acknowledged_is_there(void) {
  int w, a, there;
  for (w = 0; w < WRITERS; w++) {
    if (now.writer[w].at != ACKNOWLEDGED) continue;
    if (!now.writer[w].landed) return 0;
    for (there = now.touched, a = 0; a < ATTEMPTS; a++) there |= reaches(now.pointer, OF(w, a));
    if (!there) return 0;
  }
  return 1;
}
/* Each version before the pointer's has its archive, and the pointer came from it. */
static int versions_read_what_they_were(void) {
  int x, v;
  for (x = now.pointer; x && now.commit[x].base; x = now.commit[x].base)
    for (v = now.commit[x].version - 1; v >= now.commit[now.commit[x].base].version; v--)
      if (v >= now.commit[now.pointer].oldest && now.archive[v] != now.commit[x].base) return 0;
  return 1;
}
/* The archive of the pointer's own version is the pointer. What an operator has done is undone by a repair. */
static int archives_were_versions(void) {
  int there = now.archive[now.commit[now.pointer].version];
  return !now.pointer || now.unmended || !there || there == now.pointer || now.commit[now.pointer].stalled;
}
/* No commit on a pointer that was put back while archives that follow are there, but for that of a writer who was
   about to swap then; and none on that one. */
static int not_written_to_when_back(void) {
  int there = now.archive[now.commit[now.pointer].version];
  if (!now.touched || now.alone || !of_writer(now.pointer) || now.commit[now.pointer].stalled) return 1;
  return !there || there == now.pointer;
}
/* But for those of a writer whose base came back: of a collection in between its base says nothing. */
static int needed_files_are_there(void) {
  int x, spared[COMMITS] = {0};
  for (x = now.pointer; x; x = now.commit[x].base) spared[now.commit[x].file] |= now.commit[x].stalled;
  for (x = now.pointer; x; x = now.commit[x].base)
    if (now.commit[x].file && !spared[now.commit[x].file] && !now.here[now.commit[x].file]) return 0;
  return 1;
}
/* No file from before an erasure is added after it. */
static int erased_stays_erased(void) {
  int x;
  if (!reaches(now.pointer, ERASURE)) return 1;
  for (x = now.pointer; x != ERASURE; x = now.commit[x].base)
    if (now.commit[x].file && now.uploaded[now.commit[x].file] < now.erased_at) return 0;
  return 1;
}
int promises(void) {
  PROMISE(1, "rows are there at most once", once())
  PROMISE(2, "what was acknowledged is there", acknowledged_is_there())
  PROMISE(3, "a version reads what was committed as it", versions_read_what_they_were())
  PROMISE(4, "no archive tells of a version that never was", archives_were_versions())
  PROMISE(5, "a pointer that went back is not written to", not_written_to_when_back())
  PROMISE(6, "a file that is needed is there", needed_files_are_there())
  PROMISE(7, "nothing erased comes back", erased_stays_erased())
  return 1;
}
};

/* -- fewer states ---------------------------------------------------------------------------------------------- */

#define RENAME(place) place = moved[place]
c_code {
static unsigned char moved[COMMITS];
static void swap_bytes(unsigned char *a, unsigned char *b) { unsigned char t = *a; *a = *b; *b = t; }

/* Everything with commits renamed as `moved` says, which exchanges pairs. */
static void rename_all(void) {
  int i;
  struct Commit t;
  for (i = 1; i < COMMITS; i++) if (moved[i] > i) {
    t = now.commit[i]; now.commit[i] = now.commit[moved[i]]; now.commit[moved[i]] = t;
    swap_bytes(&now.uploaded[i], &now.uploaded[moved[i]]);
    swap_bytes((unsigned char *)&now.here[i], (unsigned char *)&now.here[moved[i]]);
    swap_bytes((unsigned char *)&now.on_its_way[i], (unsigned char *)&now.on_its_way[moved[i]]);
  }
  for (i = 1; i < COMMITS; i++) { RENAME(now.commit[i].base); RENAME(now.commit[i].file); }
  for (i = 0; i < VERSIONS; i++) RENAME(now.archive[i]);
  for (i = 0; i < WRITERS; i++) { RENAME(now.writer[i].base); RENAME(now.writer[i].file); }
  for (i = 0; i < COLLECTORS; i++) RENAME(now.collector[i].base);
  RENAME(now.pointer); RENAME(now.repaired);
}
/* What tells a writer from another, without a number of either. */
static unsigned long long key_of(int w) {
  struct Writer *me = &now.writer[w];
  unsigned long long key = me->at * 8 + me->attempt;
  int a, v, x;
  key = key * 16 + me->tried + 2 * me->landed + 4 * me->stalled;
  key = key * 8 + (me->file ? now.uploaded[me->file] * 2 + now.here[me->file] : 0);
  key = key * 16 + (me->base ? now.commit[me->base].version : 0);
  for (a = 0; a < ATTEMPTS; a++) {
    for (v = 0; v < VERSIONS && now.archive[v] != OF(w, a); v++) {}
    key = key * 31 + v;
    for (x = now.pointer; x && x != OF(w, a); x = now.commit[x].base) {}
    key = key * 31 + (x ? now.commit[x].version : 0);
    key = key * 2 + now.on_its_way[OF(w, a)];
  }
  return key;
}
static unsigned long long key_of_collector(int g) {
  struct Collector *me = &now.collector[g];
  unsigned long long key = me->at * 8 + me->boundary;
  int v, x;
  for (v = 0; v < VERSIONS && now.archive[v] != FIRST_B + g; v++) {}
  for (x = now.pointer; x && x != FIRST_B + g; x = now.commit[x].base) {}
  return (key * 31 + v) * 31 + (x ? now.commit[x].version : 0);
}
static void nobody_moves(void) { int i; for (i = 0; i < COMMITS; i++) moved[i] = i; }
static void exchange_writers(int a, int b) {
  struct Writer t = now.writer[a];
  int i;
  now.writer[a] = now.writer[b]; now.writer[b] = t;
  nobody_moves();
  for (i = 0; i < ATTEMPTS; i++) { moved[OF(a, i)] = OF(b, i); moved[OF(b, i)] = OF(a, i); }
  rename_all();
}
static void exchange_collectors(int a, int b) {
  struct Collector t = now.collector[a];
  now.collector[a] = now.collector[b]; now.collector[b] = t;
  nobody_moves();
  moved[FIRST_B + a] = FIRST_B + b; moved[FIRST_B + b] = FIRST_B + a;
  rename_all();
}
static unsigned char live[COMMITS];
static void mark(int x) { for (; x && !live[x]; x = now.commit[x].base) live[x] = 1; }

#ifndef ALL_STEPS
/* Nothing brings an earlier pointer back from here on. */
static int is_settled(void) {
  int i, settled = now.deeds == 0 && !now.repairing && swap_on_condition;
  for (i = FIRST_W; i < FIRST_B; i++) if (now.on_its_way[i]) settled = 0;
  for (i = 0; i < WRITERS; i++) if (now.writer[i].stalled) settled = 0;
  return settled;
}
/* A step that nobody else can change, and that no promise sees, is taken at once; 1 if there was one. */
static int steps_alone(struct Writer *w, int n) {
  int v = now.commit[w->base].version, mine = OF(n, w->attempt), there;
  int is_beyond = is_settled() && now.pointer && now.pointer != w->base && !now.repairs;
  if (w->at == ARCHIVE && compare_archive && (there = now.archive[v])) {
    if (there != w->base) { w->at = DOUBT; return 1; }
    if (look_for_successor) { w->at = SUCCESSOR; return 1; }
  }
  if (w->at == SUCCESSOR && now.archive[v + 1]) { w->at = DOUBT; return 1; }
  if (w->at == SWAP && is_beyond) { w->at = LOOK; return 1; }
  if (is_beyond && (w->at == DOUBT || (w->at == LOOK && look_after_doubt && now.commit[now.pointer].version > v &&
      now.commit[now.pointer].created == now.commit[w->base].created && now.commit[now.pointer].oldest == 1))) {
    there = now.commit[now.pointer].version == v + 1 ? now.pointer : now.archive[v + 1];
    /* What the pointer shows, its archive will show, if it is compared. */
    if (w->at == LOOK && there == now.pointer && !(compare_archive && archive_before_swap)) return 0;
    if (w->at == LOOK && (!there || now.commit[there].created != now.commit[w->base].created)) return 0;
    if (w->at == LOOK && there == mine) w->at = ACKNOWLEDGED;
    else if (w->attempt + 1 >= ATTEMPTS) w->at = ENDED;
    else { w->at = LOAD; w->attempt++; w->base = w->tried = w->stalled = 0; }
    return 1;
  }
  return 0;
}
static void take_steps_alone(void) {
  int i, v;
  for (i = 0; i < WRITERS; i++) while (steps_alone(&now.writer[i], i)) {}
  for (i = 0; i < COLLECTORS; i++) {
    struct Collector *g = &now.collector[i];
    v = now.commit[g->base].version;
    if (g->at == OWN_ARCHIVE && now.archive[v]) g->at = now.archive[v] == g->base ? ROOTS : DONE;
  }
}
/* What nobody reads again: clock and lost answers when all have ended, the age of a file that stays, the boundary of
   a commit that nothing is made on any more. */
static void forget_more(const unsigned char *needed) {
  unsigned char may_be_base[COMMITS] = {0};
  int i, x, writing = 0, beginning = 0, collecting = 0, settled = is_settled();
  for (i = 0; i < WRITERS; i++) writing |= now.writer[i].at != ACKNOWLEDGED && now.writer[i].at != ENDED;
  for (i = 0; i < COLLECTORS; i++) {
    beginning |= now.collector[i].at == BOUNDARY;
    collecting |= now.collector[i].at != DONE;
  }
  if (!writing) now.lost = 0;
  if (!writing && !beginning && !now.repairs && !now.erasures) now.hour = LAST_HOUR;
  if (ERASURES) return;
  for (i = 0; i < WRITERS; i++) may_be_base[now.writer[i].base] = 1;
  may_be_base[now.pointer] = may_be_base[now.repaired] = may_be_base[now.repairing] = 1;
  for (i = FIRST_W; i < FIRST_B; i++) {
    int stays = settled && !now.repairs && now.pointer && roots_after_boundary;
    if (!now.uploaded[i]) continue;
    for (x = now.pointer; x && now.commit[x].file != i; x = now.commit[x].base) {}
    if (!x) stays = 0;
    if (needed[i] == 2) continue; /* a writer may still ask how old it is */
    if (stays || !collecting || !now.here[i]) now.uploaded[i] = LAST_HOUR;
  }
  if (settled && !now.repairs) for (i = 1; i < COMMITS; i++) if (!may_be_base[i]) now.commit[i].boundary = 0;
}
#endif

void normal(void) {
  unsigned char needed[COMMITS] = {0};
  int i, j;
#ifndef ALL_STEPS
  take_steps_alone();
#endif
  for (i = 0; i < WRITERS; i++) {
    struct Writer *w = &now.writer[i];
    if (w->at == ACKNOWLEDGED || w->at == ENDED) {
      if (w->at == ENDED) w->landed = 0;
      w->base = w->file = w->attempt = w->tried = w->stalled = 0;
    }
  }
  for (i = 0; i < COLLECTORS; i++) if (now.collector[i].at == DONE)
    now.collector[i].boundary = now.collector[i].base = now.collector[i].roots = 0;
  memset(live, 0, sizeof live);
  mark(now.pointer); mark(now.repairing); mark(now.repaired);
  for (i = 0; i < VERSIONS; i++) mark(now.archive[i]);
  for (i = 0; i < WRITERS; i++) mark(now.writer[i].base);
  for (i = 0; i < COLLECTORS; i++) mark(now.collector[i].base);
  for (i = FIRST_W; i < FIRST_B; i++) if (now.on_its_way[i]) mark(i);
  for (i = FIRST_W; i < COMMITS; i++) {
    if (live[i]) needed[now.commit[i].file] = 1;
    else memset(&now.commit[i], 0, sizeof(struct Commit));
  }
  for (i = 0; i < WRITERS; i++) needed[now.writer[i].file] = 2;
  for (i = FIRST_W; i < FIRST_B; i++) if (!needed[i]) now.here[i] = now.uploaded[i] = 0;
#ifndef ALL_STEPS
  forget_more(needed);
#endif
#ifndef ALL_ORDERS
  for (i = 0; i < WRITERS; i++) for (j = 0; j + 1 < WRITERS - i; j++)
    if (key_of(j) > key_of(j + 1)) exchange_writers(j, j + 1);
  if (COLLECTORS > 1 && roots_after_boundary)
    if (key_of_collector(0) > key_of_collector(COLLECTORS - 1)) exchange_collectors(0, COLLECTORS - 1);
#endif
}
void begin(void) {
  int v;
  for (v = 1; v <= BEFORE; v++) {
    now.commit[v].base = v - 1; now.commit[v].version = v; now.commit[v].oldest = 1;
    if (v < BEFORE) now.archive[v] = v;
  }
}
};

/* -- every step ------------------------------------------------------------------------------------------------ */

#define STEP(guard, says, who, does) :: d_step { guard -> printf("step: "); printf(says); printf(" (%d, hour %d)\n", who, hour); does; skip }
#define AT_ANY_HOUR(guard, says, who, does) \
  STEP(guard, says, who, does) \
  STEP(guard && hour + 1 <= LAST_HOUR, says, who, hour = hour + 1; does) \
  STEP(guard && hour + 2 <= LAST_HOUR, says, who, hour = hour + 2; does)

#define OF_WRITER(w) \
  AT_ANY_HOUR(writer[w].at == LOAD, "writer loads, uploads, plans", w, do_load(w)) \
  STEP(writer[w].at == ARCHIVE, "writer archives its base", w, do_archive(w)) \
  STEP(writer[w].at == SUCCESSOR, "writer asks for the archive after it", w, do_successor(w)) \
  STEP(writer[w].at == DOUBT, "writer reads the pointer, in doubt", w, do_doubt(w)) \
  STEP(writer[w].at == SWAP, "writer swaps", w, do_swap(w)) \
  STEP(writer[w].at == SWAP && lost && FITS(writer[w].base), "writer swaps, and the answer is lost", w, \
    lost--; send(w); land(w); writer[w].at = LOOK) \
  STEP(writer[w].at == SWAP && lost, "writer sends a swap that does not arrive", w, lost--; writer[w].at = LOOK) \
  STEP(writer[w].at == SWAP && lost && LATE, "writer sends a swap that arrives later", w, \
    lost--; send(w); on_its_way[n] = 1; writer[w].at = LOOK) \
  STEP(writer[w].at == LOOK, "writer looks", w, do_look(w))
#define ARRIVES(w, attempt) \
  STEP(on_its_way[OF(w, attempt)] && FITS(commit[OF(w, attempt)].base), "a late swap arrives", w, \
    n = OF(w, attempt); on_its_way[n] = 0; land(w))
#define OF_COLLECTOR(g) \
  AT_ANY_HOUR(collector[g].at == BOUNDARY && (roots_after_boundary || collector[g].roots) && pointer && !REFUSED, \
    "collector commits a boundary", g, commit_boundary(g)) \
  STEP(collector[g].at == BOUNDARY && !roots_after_boundary && !collector[g].roots && pointer, \
    "collector reads the roots too early", g, read_roots(g); collector[g].roots = collector[g].roots | 1) \
  STEP(collector[g].at == OWN_ARCHIVE, "collector archives its version", g, archive_own(g)) \
  STEP(collector[g].at == ROOTS && pointer, "collector reads the roots and deletes", g, delete_garbage(g))
#define PUTS_BACK(which) \
  STEP(which < VERSIONS && MAY_PUT_BACK(which), "a commit is put back by an operator", which, put_back(which))

active proctype world() {
  c_code { begin(); };
  do
  :: atomic {
    if
    OF_WRITER(0) ARRIVES(0, 0)
#if ATTEMPTS > 1
    ARRIVES(0, 1)
#endif
#if WRITERS > 1
    OF_WRITER(1) ARRIVES(1, 0)
#if ATTEMPTS > 1
    ARRIVES(1, 1)
#endif
#endif
#if WRITERS > 2
    OF_WRITER(2) ARRIVES(2, 0)
#if ATTEMPTS > 1
    ARRIVES(2, 1)
#endif
#endif
#if COLLECTORS > 0
    OF_COLLECTOR(0)
#endif
#if COLLECTORS > 1
    OF_COLLECTOR(1)
#endif
    PUTS_BACK(1) PUTS_BACK(2) PUTS_BACK(3) PUTS_BACK(4) PUTS_BACK(5) PUTS_BACK(6) PUTS_BACK(7) PUTS_BACK(8)
    STEP(deeds && pointer, "a commit is deleted by an operator", pointer, deeds--; touched = 1; unmended = 1; pointer = 0)
    STEP(pointer == 0 && touched && (!create_on_clean_ground || archive[1] == 0), "a commit is created by an operator", CREATED,
      pointer = CREATED; commit[CREATED].version = 1; commit[CREATED].oldest = 1; commit[CREATED].created = 1)
    AT_ANY_HOUR(repairs && !repairing, "a commit is read for a repair", pointer, read_for_repair())
    STEP(repairing, "a commit is swapped in by a repair", repairing, put_repaired())
    AT_ANY_HOUR(erasures && pointer && !REFUSED, "a commit is the base of an erasure", pointer, erase())
    fi;
    d_step { c_code { normal(); holds = promises(); }; assert(holds) }
  }
  od
}
