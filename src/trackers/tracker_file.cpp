#include "trackers/tracker_file.h"

#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>

#include "core/append_file.h"

namespace gradus {

TrackerFile::TrackerFile() = default;
TrackerFile::~TrackerFile() = default;

template <class Work>
void TrackerFile::attempt(Work work) {
  try {
    work();
  } catch (const Error& error) {
    file_.reset();
    log_warning(std::string("training continues without this tracker: ") + error.what());
  }
}

bool TrackerFile::open(const std::filesystem::path& file) {
  close();
  attempt([&] {
    if (file.has_parent_path()) make_directory(file.parent_path());
    file_ = std::make_unique<AppendFile>(file);
  });
  return file_ != nullptr;
}

void TrackerFile::drop_partial_line() {
  if (file_ != nullptr) attempt([&] { file_->drop_partial_line(); });
}

void TrackerFile::append(std::string_view bytes) {
  if (file_ == nullptr) return;
  attempt([&] {
    file_->append(bytes);
    file_->flush();
  });
}

void TrackerFile::close() { file_.reset(); }

}  // namespace gradus
