// The library that tests/chaos loads into a run with LD_PRELOAD. It stands between the run and the
// system's calls on files: it lets one of them fail or kills the run there, and it notes every
// change, so that disk.py can tell what a cut of the power would have left.
//
// Only calls on files below the folder CHAOS_ROOT count (absolute, without links). Further
// variables:
//
//   CHAOS_PLAN    "CALL N WHAT TIMES": from the N-th CALL on, TIMES calls do WHAT. CALL is a name
//                 of kNames or `any`. WHAT is the number of an error, `short` (half of a read or a
//                 write is done), or `kill`.
//   CHAOS_SPACE   "BYTES FAILURES": after BYTES written bytes the disk is full. After that many
//                 FAILURES it has room again.
//   CHAOS_EVENTS  the file to which is appended what happened, and at exit the number of calls.
//   CHAOS_LOG     the file to which every change is appended, for disk.py.
//   CHAOS_GRAVE   the folder, beside CHAOS_ROOT, that keeps a second name of every deleted file.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

enum Call {
  kOpen,
  kRead,
  kWrite,
  kSync,
  kRename,
  kMkdir,
  kLink,
  kUnlink,
  kTruncate,
  kMap,
  kLock,
  kList,
  kCalls
};
constexpr const char* kNames[kCalls] = {"open", "read",   "write",    "sync", "rename", "mkdir",
                                        "link", "unlink", "truncate", "map",  "lock",   "list"};
constexpr int kAny = kCalls;
constexpr int kMostFiles = 1024;

struct Shim {
  char root[PATH_MAX] = "";
  size_t root_length = 0;
  char grave[PATH_MAX] = "";
  int events = -1, log = -1;
  int call = -1;  // of the plan; -1: there is none
  long at = 0, times = 0;
  int error = 0;
  bool kills = false, shortens = false;
  long space = -1, space_failures = 0;  // -1: no limit
  long counts[kCalls + 1] = {};
};

Shim g_shim;
std::atomic<bool> g_watched[kMostFiles];
pthread_once_t g_once = PTHREAD_ONCE_INIT;
pthread_mutex_t g_mutex = PTHREAD_MUTEX_INITIALIZER;

// A file of ours, away from the numbers that the run sees.
int open_for_notes(const char* variable) {
  const char* path = std::getenv(variable);
  if (path == nullptr) return -1;
  const long file =
      syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const int moved = fcntl(int(file), F_DUPFD_CLOEXEC, kMostFiles);
  if (moved < 0) return int(file);
  syscall(SYS_close, file);
  return moved;
}

void read_settings() {
  const char* root = std::getenv("CHAOS_ROOT");
  if (root == nullptr) return;
  std::snprintf(g_shim.root, sizeof g_shim.root, "%s", root);
  g_shim.root_length = std::strlen(g_shim.root);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no run is left behind when the driver ends
  if (const char* grave = std::getenv("CHAOS_GRAVE"))
    std::snprintf(g_shim.grave, sizeof g_shim.grave, "%s", grave);
  if (const char* space = std::getenv("CHAOS_SPACE"))
    std::sscanf(space, "%ld %ld", &g_shim.space, &g_shim.space_failures);
  if (const char* plan = std::getenv("CHAOS_PLAN")) {
    char call[16] = "", what[16] = "";
    std::sscanf(plan, "%15s %ld %15s %ld", call, &g_shim.at, what, &g_shim.times);
    g_shim.call = kAny;
    for (int i = 0; i < kCalls; ++i)
      if (std::strcmp(call, kNames[i]) == 0) g_shim.call = i;
    g_shim.kills = std::strcmp(what, "kill") == 0;
    g_shim.shortens = std::strcmp(what, "short") == 0;
    g_shim.error = std::atoi(what);
  }
  g_shim.events = open_for_notes("CHAOS_EVENTS");
  g_shim.log = open_for_notes("CHAOS_LOG");
}

const Shim& shim() {
  pthread_once(&g_once, read_settings);
  return g_shim;
}

// Holds the lock under which calls on watched files happen one after the other, so that the notes
// are in the order of what they tell.
class Turn {
 public:
  Turn() { pthread_mutex_lock(&g_mutex); }
  ~Turn() { pthread_mutex_unlock(&g_mutex); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
};

__attribute__((format(printf, 2, 3))) void note(int file, const char* format, ...) {
  if (file < 0) return;
  const int before = errno;
  char line[2 * NAME_MAX + 256];
  va_list values;
  va_start(values, format);
  const int size = std::vsnprintf(line, sizeof line, format, values);
  va_end(values);
  syscall(SYS_write, file, line, size_t(size));
  errno = before;
}

[[noreturn]] void die() {
  syscall(SYS_kill, getpid(), SIGKILL);
  for (;;) pause();
}

struct Fate {
  int error = 0;
  bool is_short = false;
};

// Counts the call, and says what the plan has for it. Does not return when that is the end.
Fate fate_of(Call call) {
  auto& s = g_shim;
  const long of_its_kind = ++s.counts[call], of_all = ++s.counts[kAny];
  if (s.call != kAny && s.call != call) return {};
  const long number = s.call == kAny ? of_all : of_its_kind;
  if (number < s.at || number >= s.at + s.times) return {};
  if (s.shortens && call != kRead && call != kWrite) return {};
  note(s.events, "%s %s %ld %d\n", s.kills ? "killed" : "failed", kNames[call], number, s.error);
  if (s.kills) die();
  return {s.error, s.shortens};
}

bool fail_with(int error) {
  errno = error;
  return true;
}

bool disk_is_full() {
  auto& s = g_shim;
  if (s.space != 0) return false;
  if (s.space_failures-- <= 0) {
    s.space = -1;
    return false;
  }
  note(s.events, "full\n");
  return fail_with(ENOSPC);
}

// How many of `size` bytes may be written; 0 with errno when none.
size_t room_for(size_t size) {
  auto& s = g_shim;
  if (disk_is_full()) return 0;
  if (s.space < 0) return size;
  const size_t room = size < size_t(s.space) ? size : size_t(s.space);
  s.space -= long(room);
  return room;
}

// A path that a call names, and whether it is below the root.
class Place {
 public:
  Place(int folder, const char* path) {
    if (path == nullptr || shim().root_length == 0) return;
    const int before = errno;
    size_t used = 0;
    if (path[0] != '/') {
      char link[64];
      std::snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
      const ssize_t n =
          readlink(folder == AT_FDCWD ? "/proc/self/cwd" : link, path_, sizeof path_ - 1);
      if (n > 0) used = size_t(n);
      path_[used++] = '/';
    }
    const size_t length = std::strlen(path);
    if (used + length + 1 < sizeof path_) {
      std::memcpy(path_ + used, path, length + 1);
      is_watched_ = std::strncmp(path_, shim().root, shim().root_length) == 0 &&
                    (path_[shim().root_length] == '/' || path_[shim().root_length] == '\0');
      end_at_name();
    }
    errno = before;
  }

  bool is_watched() const { return is_watched_; }
  const char* path() const { return path_; }
  const char* name() const {
    const char* slash = std::strrchr(path_, '/');
    return slash == nullptr ? path_ : slash + 1;
  }
  // 0 when there is none.
  unsigned long inode() const {
    struct stat info{};
    return lstat(path_, &info) == 0 ? info.st_ino : 0;
  }
  bool is_file() const {
    struct stat info{};
    return lstat(path_, &info) == 0 && S_ISREG(info.st_mode);
  }
  unsigned long folder_inode() const {
    char folder[PATH_MAX];
    std::snprintf(folder, sizeof folder, "%s", path_);
    if (char* slash = std::strrchr(folder, '/')) *slash = '\0';
    struct stat info{};
    return stat(folder, &info) == 0 ? info.st_ino : 0;
  }

 private:
  void end_at_name() {
    for (size_t n = std::strlen(path_); n > 1 && path_[n - 1] == '/'; --n) path_[n - 1] = '\0';
  }

  char path_[PATH_MAX] = "";
  bool is_watched_ = false;
};

bool is_watched(int file) {
  return file >= 0 && file < kMostFiles && g_watched[file].load(std::memory_order_relaxed);
}

unsigned long inode_of(int file) {
  struct stat info{};
  return fstat(file, &info) == 0 ? info.st_ino : 0;
}

// A second name for a file that is about to lose its own.
void bury(const Place& place) {
  if (shim().log < 0 || !place.is_file()) return;
  const int before = errno;
  char second[PATH_MAX];
  if (std::snprintf(second, sizeof second, "%s/%lu", shim().grave, place.inode()) < PATH_MAX)
    syscall(SYS_linkat, AT_FDCWD, place.path(), AT_FDCWD, second, 0);
  errno = before;
}

void note_new(const Place& place, char kind) {
  note(shim().log, "make\t%lu\t%s\t%lu\t%c\n", place.folder_inode(), place.name(), place.inode(),
       kind);
}

int open_file(int folder, const char* path, int flags, mode_t mode) {
  const auto really = [&] { return int(syscall(SYS_openat, folder, path, flags, mode)); };
  const Place place(folder, path);
  if (!place.is_watched()) {
    const int file = really();
    if (file >= 0 && file < kMostFiles) g_watched[file] = false;
    return file;
  }
  const Turn turn;
  if (const auto fate = fate_of(kOpen); fate.error != 0) return errno = fate.error, -1;
  const bool is_new = (flags & O_CREAT) != 0 && place.inode() == 0;
  if (is_new && disk_is_full()) return -1;
  const int file = really();
  if (file < 0 || file >= kMostFiles) return file;
  g_watched[file] = true;
  if (is_new)
    note_new(place, 'f');
  else if ((flags & O_TRUNC) != 0)
    note(shim().log, "size\t%lu\t0\n", inode_of(file));
  return file;
}

mode_t mode_of(int flags, va_list values) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(values, mode_t) : 0;
}

// Runs `work(bytes)`, or a part of it, or nothing.
template <class F>
ssize_t transfer(Call call, size_t size, F work) {
  const auto fate = fate_of(call);
  if (fate.error != 0) return errno = fate.error, -1;
  if (fate.is_short && size > 1) size /= 2;
  if (call == kWrite && size > 0) {
    size = room_for(size);
    if (size == 0) return -1;
  }
  return work(size);
}

ssize_t write_file(int file, const void* bytes, size_t size, off_t at) {
  const auto really = [&](size_t n) -> ssize_t {
    return at < 0 ? syscall(SYS_write, file, bytes, n) : syscall(SYS_pwrite64, file, bytes, n, at);
  };
  if (!is_watched(file)) return really(size);
  const Turn turn;
  const auto n = transfer(kWrite, size, really);
  if (n > 0 && shim().log >= 0) {
    const long end = at < 0 ? long(lseek(file, 0, SEEK_CUR)) : long(at + n);
    note(shim().log, "write\t%lu\t%ld\t%ld\n", inode_of(file), end - long(n), end);
  }
  return n;
}

ssize_t read_file(int file, void* bytes, size_t size, off_t at) {
  const auto really = [&](size_t n) -> ssize_t {
    return at < 0 ? syscall(SYS_read, file, bytes, n) : syscall(SYS_pread64, file, bytes, n, at);
  };
  if (!is_watched(file)) return really(size);
  const Turn turn;
  return transfer(kRead, size, really);
}

int sync_file(int file, long number) {
  if (!is_watched(file)) return int(syscall(number, file));
  const Turn turn;
  if (const auto fate = fate_of(kSync); fate.error != 0) return errno = fate.error, -1;
  const int result = int(syscall(number, file));
  if (result == 0) note(shim().log, "sync\t%lu\n", inode_of(file));
  return result;
}

int rename_file(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  const auto really = [&] {
    return int(syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  };
  const Place source(from_folder, from), target(to_folder, to);
  if (!source.is_watched() && !target.is_watched()) return really();
  const Turn turn;
  if (const auto fate = fate_of(kRename); fate.error != 0) return errno = fate.error, -1;
  const auto moved = source.inode(), replaced = target.inode();
  if ((flags & RENAME_EXCHANGE) == 0) bury(target);
  const int result = really();
  if (result == 0)
    note(shim().log, "move\t%lu\t%s\t%lu\t%s\t%lu\t%lu\n", source.folder_inode(), source.name(),
         target.folder_inode(), target.name(), moved,
         (flags & RENAME_EXCHANGE) != 0 ? replaced : 0);
  return result;
}

int make_folder(int folder, const char* path, mode_t mode) {
  const auto really = [&] { return int(syscall(SYS_mkdirat, folder, path, mode)); };
  const Place place(folder, path);
  if (!place.is_watched()) return really();
  const Turn turn;
  if (const auto fate = fate_of(kMkdir); fate.error != 0) return errno = fate.error, -1;
  if (place.inode() == 0 && disk_is_full()) return -1;
  const int result = really();
  if (result == 0) note_new(place, 'd');
  return result;
}

int link_file(int from_folder, const char* from, int to_folder, const char* to, int flags) {
  const auto really = [&] {
    return int(syscall(SYS_linkat, from_folder, from, to_folder, to, flags));
  };
  const Place target(to_folder, to);
  if (!target.is_watched()) return really();
  const Turn turn;
  if (const auto fate = fate_of(kLink); fate.error != 0) return errno = fate.error, -1;
  const int result = really();
  if (result == 0) note_new(target, 'l');
  return result;
}

int unlink_file(int folder, const char* path, int flags) {
  const auto really = [&] { return int(syscall(SYS_unlinkat, folder, path, flags)); };
  const Place place(folder, path);
  if (!place.is_watched()) return really();
  const Turn turn;
  if (const auto fate = fate_of(kUnlink); fate.error != 0) return errno = fate.error, -1;
  if ((flags & AT_REMOVEDIR) == 0) bury(place);
  const int result = really();
  if (result == 0) note(shim().log, "remove\t%lu\t%s\n", place.folder_inode(), place.name());
  return result;
}

int cut_file(int file, off_t size) {
  if (!is_watched(file)) return int(syscall(SYS_ftruncate, file, size));
  const Turn turn;
  if (const auto fate = fate_of(kTruncate); fate.error != 0) return errno = fate.error, -1;
  const int result = int(syscall(SYS_ftruncate, file, size));
  if (result == 0) note(shim().log, "size\t%lu\t%ld\n", inode_of(file), long(size));
  return result;
}

void* map_file(void* address, size_t size, int protection, int flags, int file, off_t at) {
  if (is_watched(file)) {
    const Turn turn;
    if (const auto fate = fate_of(kMap); fate.error != 0) return errno = fate.error, MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, size, protection, flags, file, at));
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

FILE* open_stream(const char* path, const char* mode, const char* function) {
  const auto really = next<FILE*(const char*, const char*)>(function);
  const Place place(AT_FDCWD, path);
  if (!place.is_watched()) return really(path, mode);
  const Turn turn;
  if (const auto fate = fate_of(kOpen); fate.error != 0) return errno = fate.error, nullptr;
  const bool is_new = place.inode() == 0;
  FILE* file = really(path, mode);
  if (file == nullptr) return nullptr;
  if (const int number = fileno(file); number < kMostFiles) g_watched[number] = true;
  if (is_new) note_new(place, 'f');
  return file;
}

__attribute__((destructor)) void say_how_many() {
  if (g_shim.events < 0) return;
  for (int i = 0; i < kCalls; ++i)
    note(g_shim.events, "count %s %ld\n", kNames[i], g_shim.counts[i]);
  note(g_shim.events, "count any %ld\n", g_shim.counts[kAny]);
}

}  // namespace

#define OPEN_WITH(folder)                     \
  va_list values;                             \
  va_start(values, flags);                    \
  const mode_t mode = mode_of(flags, values); \
  va_end(values);                             \
  return open_file(folder, path, flags, mode)

extern "C" {
int open(const char* path, int flags, ...) { OPEN_WITH(AT_FDCWD); }
int open64(const char* path, int flags, ...) { OPEN_WITH(AT_FDCWD); }
int openat(int folder, const char* path, int flags, ...) { OPEN_WITH(folder); }
int openat64(int folder, const char* path, int flags, ...) { OPEN_WITH(folder); }
// What programs compiled with _FORTIFY_SOURCE call.
int __open_2(const char* path, int flags);
int __open64_2(const char* path, int flags);
int __openat_2(int folder, const char* path, int flags);
int __openat64_2(int folder, const char* path, int flags);
ssize_t __read_chk(int file, void* bytes, size_t size, size_t room);
int __open_2(const char* path, int flags) { return open_file(AT_FDCWD, path, flags, 0); }
int __open64_2(const char* path, int flags) { return open_file(AT_FDCWD, path, flags, 0); }
int __openat_2(int folder, const char* path, int flags) {
  return open_file(folder, path, flags, 0);
}
int __openat64_2(int folder, const char* path, int flags) {
  return open_file(folder, path, flags, 0);
}
ssize_t __read_chk(int file, void* bytes, size_t size, size_t) {
  return read_file(file, bytes, size, -1);
}
FILE* fopen(const char* path, const char* mode) { return open_stream(path, mode, "fopen"); }
FILE* fopen64(const char* path, const char* mode) { return open_stream(path, mode, "fopen64"); }
int close(int file) {
  if (file >= 0 && file < kMostFiles) g_watched[file] = false;
  return int(syscall(SYS_close, file));
}
ssize_t write(int file, const void* bytes, size_t size) {
  return write_file(file, bytes, size, -1);
}
ssize_t pwrite(int file, const void* bytes, size_t size, off_t at) {
  return write_file(file, bytes, size, at);
}
ssize_t pwrite64(int file, const void* bytes, size_t size, off_t at) {
  return write_file(file, bytes, size, at);
}
// One part at a time: a caller must be able to go on after fewer bytes than it gave.
ssize_t writev(int file, const iovec* parts, int count) {
  if (!is_watched(file)) return syscall(SYS_writev, file, parts, count);
  for (int i = 0; i < count; ++i)
    if (parts[i].iov_len > 0) return write_file(file, parts[i].iov_base, parts[i].iov_len, -1);
  return 0;
}
ssize_t read(int file, void* bytes, size_t size) { return read_file(file, bytes, size, -1); }
ssize_t pread(int file, void* bytes, size_t size, off_t at) {
  return read_file(file, bytes, size, at);
}
ssize_t pread64(int file, void* bytes, size_t size, off_t at) {
  return read_file(file, bytes, size, at);
}
int fsync(int file) { return sync_file(file, SYS_fsync); }
int fdatasync(int file) { return sync_file(file, SYS_fdatasync); }
int rename(const char* from, const char* to) noexcept {
  return rename_file(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return rename_file(from_folder, from, to_folder, to, 0);
}
int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  return rename_file(from_folder, from, to_folder, to, flags);
}
int mkdir(const char* path, mode_t mode) noexcept { return make_folder(AT_FDCWD, path, mode); }
int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return make_folder(folder, path, mode);
}
int link(const char* from, const char* to) noexcept {
  return link_file(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  return link_file(from_folder, from, to_folder, to, flags);
}
int unlink(const char* path) noexcept { return unlink_file(AT_FDCWD, path, 0); }
int unlinkat(int folder, const char* path, int flags) noexcept {
  return unlink_file(folder, path, flags);
}
int rmdir(const char* path) noexcept { return unlink_file(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) noexcept {
  struct stat info{};
  const bool is_folder = lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
  return unlink_file(AT_FDCWD, path, is_folder ? AT_REMOVEDIR : 0);
}
int ftruncate(int file, off_t size) noexcept { return cut_file(file, size); }
int ftruncate64(int file, off_t size) noexcept { return cut_file(file, size); }
void* mmap(void* address, size_t size, int protection, int flags, int file, off_t at) noexcept {
  return map_file(address, size, protection, flags, file, at);
}
void* mmap64(void* address, size_t size, int protection, int flags, int file, off_t at) noexcept {
  return map_file(address, size, protection, flags, file, at);
}
int flock(int file, int operation) noexcept {
  if (is_watched(file)) {
    const Turn turn;
    if (const auto fate = fate_of(kLock); fate.error != 0) return errno = fate.error, -1;
  }
  return int(syscall(SYS_flock, file, operation));
}
DIR* opendir(const char* path) {
  if (const Place place(AT_FDCWD, path); place.is_watched()) {
    const Turn turn;
    if (const auto fate = fate_of(kList); fate.error != 0) return errno = fate.error, nullptr;
  }
  return next<DIR*(const char*)>("opendir")(path);
}
}
