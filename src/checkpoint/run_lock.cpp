#include "checkpoint/run_lock.h"

#include <fcntl.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <string>

#include "core/open_folder.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLockFile = ".gradus.lock";
using FolderId = std::pair<dev_t, ino_t>;

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// "process 4711 on host a", as far as the lock file says so.
std::string holder_of(int lock_file) {
  char text[300] = {};
  const auto size = ::pread(lock_file, text, sizeof text - 1, 0);
  const std::string line(text, size_t(std::max<ssize_t>(size, 0)));
  const auto space = line.find(' ');
  const auto process = line.substr(0, space);
  if (process.empty() || process.find_first_not_of("0123456789") != std::string::npos)
    return "another process";
  const auto host = space == std::string::npos
                        ? std::string()
                        : line.substr(space + 1, line.find('\n', space) - space - 1);
  const bool is_here = host.empty() || host == host_name();
  return "process " + process + (is_here ? "" : " on " + host);
}

void note_holder(int lock_file) {
  const auto line = std::to_string(::getpid()) + " " + host_name() + "\n";
  // Only for messages: nothing is lost where it cannot be written.
  if (::ftruncate(lock_file, 0) != 0 ||
      ::pwrite(lock_file, line.data(), line.size(), 0) != ssize_t(line.size()))
    log_debug("the lock file could not be written");
}

void warn_without_lock(const fs::path& folder, int code) {
  log_warning_once(folder.string() + " cannot be locked (" + system_reason(code) +
                   "): make sure that no other process trains into it.");
}

// Opens the lock file; where that may not be written, for reading.
Descriptor open_lock_file(const OpenFolder& folder) {
  constexpr int kFlags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  Descriptor file(::openat(folder.descriptor(), kLockFile, O_RDWR | O_CREAT | kFlags, 0666));
  if (!file.is_open() && (errno == EACCES || errno == EROFS)) {
    const int code = errno;
    file = Descriptor(::openat(folder.descriptor(), kLockFile, O_RDONLY | kFlags));
    if (!file.is_open()) errno = code;
  }
  return file;
}

bool is_regular(const Descriptor& file) {
  struct stat info{};
  return ::fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode);
}

// Whether the file still has its name: the holder before may have removed it with its lock.
bool is_still_named(const OpenFolder& folder, const Descriptor& file) {
  struct stat named{}, open{};
  return ::fstat(file.get(), &open) == 0 &&
         ::fstatat(folder.descriptor(), kLockFile, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         named.st_ino == open.st_ino && named.st_dev == open.st_dev;
}

}  // namespace

// A lock of this process. Its last user gives it back.
struct RunLock::Held {
  Held(OpenFolder in, Descriptor locked, FolderId of)
      : folder(std::move(in)), file(std::move(locked)), id(of) {}
  ~Held();

  OpenFolder folder;
  Descriptor file;  // none where nothing could be locked
  FolderId id;

  // The locks of this process by folder.
  struct Table {
    std::mutex mutex;
    std::map<FolderId, std::weak_ptr<Held>> locks;
  };
  static Table& table() {
    static auto& all = *new Table;
    return all;
  }
};

RunLock::Held::~Held() {
  const std::scoped_lock lock(table().mutex);
  if (const auto entry = table().locks.find(id);
      entry != table().locks.end() && entry->second.expired())
    table().locks.erase(entry);
  // The name first: whoever opens the file later must not wait on one that is gone.
  if (file.is_open()) folder.remove(kLockFile);
}

RunLock::RunLock(const fs::path& folder) : held_(acquire(folder)) {}

std::shared_ptr<RunLock::Held> RunLock::acquire(const fs::path& path) {
  OpenFolder folder(path);
  struct stat info{};
  ::fstat(folder.descriptor(), &info);
  const FolderId id{info.st_dev, info.st_ino};
  auto& table = Held::table();
  const std::scoped_lock lock(table.mutex);
  if (auto held = table.locks[id].lock()) return held;
  Descriptor file;
  while (true) {
    file = open_lock_file(folder);
    if (!file.is_open() || !is_regular(file)) {
      warn_without_lock(path, file.is_open() ? EINVAL : errno);
      file = Descriptor();
      break;
    }
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) {
      if (!is_still_named(folder, file)) continue;
      note_holder(file.get());
      break;
    }
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK)
      throw Error("G-CKPT-7", ErrorKind::checkpoint,
                  path.string() + " is in use: " + holder_of(file.get()) + " trains into it",
                  "Wait until it has ended, or end it; or name another --output_dir. A lock of a "
                  "process that was killed does not stay.");
    warn_without_lock(path, errno);
    file = Descriptor();
    break;
  }
  auto held = std::make_shared<Held>(std::move(folder), std::move(file), id);
  table.locks[id] = held;
  return held;
}

}  // namespace gradus
