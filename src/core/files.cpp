#include <fcntl.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "core/file_errors.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

// A file descriptor that closes itself.
class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

constexpr const char* kNothingChanged = "Nothing that was there before was changed. ";

bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const auto n = ::write(fd, content.data(), std::min<size_t>(content.size(), size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    content.remove_prefix(size_t(n));
  }
  return true;
}

}  // namespace

Error cannot_read(const fs::path& file, int code) {
  return {"G-IO-1", ErrorKind::io, "cannot read " + file.string() + ": " + system_reason(code),
          "Check that the path is right and may be read by this user."};
}

Error cannot_write(const fs::path& file, int code, const std::string& before) {
  return {"G-IO-2", ErrorKind::io, "cannot write " + file.string() + ": " + system_reason(code),
          before + "Check free space, quotas and permissions of the folder."};
}

std::string system_reason(int code) { return std::generic_category().message(code); }

std::string read_file(const fs::path& file) {
  const Descriptor in(file, O_RDONLY);
  struct stat info{};
  if (in.get() < 0 || ::fstat(in.get(), &info) != 0) throw cannot_read(file, errno);
  if (S_ISDIR(info.st_mode)) throw cannot_read(file, EISDIR);
  std::string content;
  char buffer[1 << 16];
  if (S_ISREG(info.st_mode)) content.reserve(size_t(info.st_size));
  for (;;) {
    const auto n = ::read(in.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw cannot_read(file, errno);
    if (n == 0) return content;
    content.append(buffer, size_t(n));
  }
}

void write_file_atomically(const fs::path& file, std::string_view content) {
  auto temporary = file;
  temporary += ".tmp-" + std::to_string(::getpid());
  const auto fail = [&](int code) {
    ::unlink(temporary.c_str());
    throw cannot_write(file, code, kNothingChanged);
  };
  {
    const Descriptor out(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    if (out.get() < 0) throw cannot_write(file, errno, kNothingChanged);
    if (!write_all(out.get(), content) || ::fsync(out.get()) != 0) fail(errno);
  }
  if (::rename(temporary.c_str(), file.c_str()) != 0) fail(errno);
  sync_path(file.has_parent_path() ? file.parent_path() : fs::path("."));
}

void make_directory(const fs::path& directory) {
  std::error_code code;
  fs::create_directories(directory, code);
  if (!code && fs::is_directory(directory)) return;
  const bool is_file = fs::exists(directory) && !fs::is_directory(directory);
  throw Error("G-IO-3", ErrorKind::io,
              "cannot create the folder " + directory.string() + ": " +
                  (is_file ? "a file of that name exists" : code.message()),
              is_file ? "Name another folder, or move the file away."
                      : "Check the path and the permissions of its parent folder.");
}

void sync_path(const fs::path& path) {
  const Descriptor target(path, O_RDONLY);
  if (target.get() < 0 || (::fsync(target.get()) != 0 && errno != EINVAL))
    throw cannot_write(path, errno, kNothingChanged);
}

void publish_directory(const fs::path& temporary, const fs::path& final_name) {
  sync_path(temporary);
  if (::rename(temporary.c_str(), final_name.c_str()) != 0)
    throw cannot_write(final_name, errno, kNothingChanged);
  sync_path(final_name.has_parent_path() ? final_name.parent_path() : fs::path("."));
}

void move_file(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw cannot_write(to, errno, kNothingChanged);
}

fs::path expand_user(const fs::path& path) {
  const auto text = path.string();
  if (text != "~" && !text.starts_with("~/")) return path;
  const char* home = std::getenv("HOME");
  return home == nullptr ? path : fs::path(home + text.substr(1));
}

}  // namespace gradus
