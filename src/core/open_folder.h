#pragma once

#include <filesystem>
#include <string>
#include <utility>

namespace gradus {

/// A file descriptor that closes itself; -1 for none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// A folder that was opened once. Everything in it is then reached through its descriptor, so that
/// a folder or a link put in its place later changes nothing.
///
/// Names are those of entries, without a slash. No function follows a link of that name. All throw
/// `Error` G-IO-2 with the path that was meant. Thread-safety: const members from any thread.
class OpenFolder {
 public:
  /// An empty path is the current folder.
  explicit OpenFolder(const std::filesystem::path& path);
  /// Creates a folder of that name in `parent` and opens it. Throws `Error` G-IO-3.
  static OpenFolder create(const OpenFolder& parent, const std::string& name);

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_.get(); }

  /// Whether there is an entry of that name: a file, a folder, or a link, also one to nowhere.
  bool contains(const std::string& name) const;
  /// Whether the entry of that name is this very folder.
  bool holds(const std::string& name, const OpenFolder& folder) const;
  /// Renames an entry and replaces a file of the new name.
  void rename(const std::string& from, const std::string& to) const;
  /// Exchanges the names of two entries; false where the file system cannot.
  bool exchange(const std::string& one, const std::string& other) const;
  /// Removes a file, as far as it can.
  void remove(const std::string& name) const noexcept;
  /// Flushes the folder's entries to disk.
  void sync() const;

 private:
  OpenFolder(std::filesystem::path path, Descriptor descriptor)
      : path_(std::move(path)), descriptor_(std::move(descriptor)) {}

  std::filesystem::path path_;
  Descriptor descriptor_;
};

}  // namespace gradus
