#include "runs/study_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

namespace gradus::runs {
namespace {

namespace fs = std::filesystem;

constexpr int kDepth = 3;                // folders below the root
constexpr size_t kMostFiles = 200;       // databases that are looked at
constexpr auto kNotes = "gradus:sweep";  // what `gradus sweep` notes of a study

void find_databases(const fs::path& folder, int depth, std::vector<fs::path>& found) {
  std::error_code unknown;
  for (fs::directory_iterator entry(folder, unknown), end; !unknown && entry != end;
       entry.increment(unknown)) {
    std::error_code kind;
    if (entry->is_symlink(kind) || found.size() >= kMostFiles) continue;
    const auto name = entry->path().filename().string();
    if (entry->is_directory(kind)) {
      if (depth > 0 && !name.starts_with(".") && !name.starts_with("checkpoint-"))
        find_databases(entry->path(), depth - 1, found);
    } else if (entry->is_regular_file(kind) &&
               (name.ends_with(".db") || name.ends_with(".sqlite3"))) {
      found.push_back(entry->path());
    }
  }
}

/// What changes with a database: the counter in its header, sizes and times of it and of what
/// SQLite keeps beside it.
std::string stamp_of(const fs::path& file) {
  std::string stamp(28, '\0');
  std::ifstream(file, std::ios::binary).read(stamp.data(), std::streamsize(stamp.size()));
  for (const char* end : {"", "-wal"}) {
    const auto part = fs::path(file.string() + end);
    std::error_code unknown, none;
    const auto time = fs::last_write_time(part, unknown);
    if (!unknown)
      stamp += fmt::format("{} {} ", time.time_since_epoch().count(), fs::file_size(part, none));
  }
  return stamp;
}

}  // namespace

fs::path FoundStudy::runs_folder() const {
  const auto beside = file.parent_path();
  std::error_code unknown;
  if (fs::is_directory(beside / "run-0", unknown)) return beside;
  const auto notes = study.user_attrs.find(kNotes);
  if (notes == study.user_attrs.end() || !notes->is_object()) return beside;
  const auto named = notes->find("output_dir");
  return named != notes->end() && named->is_string() ? fs::path(named->get<std::string>()) : beside;
}

std::string FoundStudy::metric() const {
  const auto notes = study.user_attrs.find(kNotes);
  if (notes == study.user_attrs.end() || !notes->is_object()) return "value";
  const auto found = notes->find("metric");
  return found != notes->end() && found->is_string() ? found->get<std::string>() : "value";
}

bool StudyFolder::look() {
  std::vector<fs::path> found;
  find_databases(root_, kDepth, found);
  bool changed = std::erase_if(files_, [&](const auto& known) {
                   return std::find(found.begin(), found.end(), known.first) == found.end();
                 }) > 0;
  for (const auto& path : found) {
    auto& file = files_[path];
    const auto stamp = stamp_of(path);  // before it is read: a later change is read again
    if (stamp == file.stamp) continue;
    try {
      file.studies = search::read_studies(path);
      file.stamp = stamp;
      changed = true;
    } catch (const std::exception&) {  // another kind of file, or one that is being written
    }
  }
  return changed;
}

std::vector<FoundStudy> StudyFolder::studies() const {
  std::vector<FoundStudy> all;
  for (const auto& [path, file] : files_)
    for (const auto& study : file.studies) all.push_back({path, study});
  return all;
}

}  // namespace gradus::runs
