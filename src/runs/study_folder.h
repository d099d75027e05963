#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "search/recorded_study.h"

namespace gradus::runs {

/// A study of a hyperparameter search, and where it was found.
struct FoundStudy {
  std::filesystem::path file;
  search::RecordedStudy study;

  /// Where `gradus sweep` and `hyperparameter_search` put the trials: N trains in "run-N".
  std::filesystem::path runs_folder() const;
  /// What the value of a trial is: "eval_loss"; "value" when nobody said.
  std::string metric() const;
};

/// The studies in a folder and those below it: files *.db and *.sqlite3 with the tables of Optuna.
///
/// Only files that have changed are read again. Nothing is written. Thread-safety: none.
class StudyFolder {
 public:
  explicit StudyFolder(std::filesystem::path root) : root_(std::move(root)) {}

  /// Looks for files that are new or have changed; whether there was one. A file that cannot be
  /// read for the moment keeps the studies it had and is tried again.
  bool look();
  /// All studies, by file and name.
  std::vector<FoundStudy> studies() const;

 private:
  struct File {
    std::string stamp;  // of what was read
    std::vector<search::RecordedStudy> studies;
  };

  std::filesystem::path root_;
  std::map<std::filesystem::path, File> files_;
};

}  // namespace gradus::runs
