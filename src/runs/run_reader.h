#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runs/run_data.h"

namespace gradus::runs {

/// The file that `gradus train` writes while a run is under way; `RunLogWriter` says what is in it.
inline constexpr const char* kRunLogFile = "run_log.jsonl";

/// Reads what a run has left so far, and goes on reading while it is under way.
///
/// The run is a folder or a file. Of a folder the first of these is read that is there:
/// run_log.jsonl, log.jsonl, log.csv, trainer_state.json, and that of the newest checkpoint. Only
/// new bytes are read, a line that is not finished is left for later, and a file that was replaced
/// or cut is read from its beginning. Nothing is ever written, locked or waited for.
/// Thread-safety: none.
class RunReader {
 public:
  explicit RunReader(std::filesystem::path path);
  ~RunReader();
  RunReader(RunReader&&) noexcept;
  RunReader& operator=(RunReader&&) noexcept;

  /// Reads what is new, at most about `bytes`; whether there was anything. A file that is gone or
  /// cannot be read is no error: what was read stays.
  bool poll(size_t bytes = size_t(-1));
  /// How much of the file `poll` has not read yet.
  size_t bytes_left() const;

  const RunData& data() const { return data_; }
  /// The folder of the run: checkpoints and samples are looked for here.
  const std::filesystem::path& folder() const { return folder_; }
  /// The file that is read; empty when there is none yet.
  const std::filesystem::path& file() const { return file_; }

 private:
  class Lines;

  std::filesystem::path best_source() const;
  void start_over(const std::filesystem::path& file);
  bool read_state();
  void take_lines(std::string_view text);
  void take_json_line(std::string_view line);
  void take_event(const nlohmann::json& event);
  void take_progress(const nlohmann::json& event, double time);
  void take_csv_line(std::string_view line);
  void take_entry(const nlohmann::json& entry);
  void keep_message(RunMessage message);
  /// The series of `key`. The keys of a log come in the same order in most lines, which is why the
  /// one at `position` is looked at first.
  Series& series_at(size_t position, std::string_view key);

  std::filesystem::path path_, folder_, file_;
  RunData data_;
  std::unique_ptr<Lines> lines_;
  std::vector<std::pair<std::string, Series*>> order_;  // keys as they came in the last line
  std::vector<std::string> columns_;                    // of a CSV file
  std::vector<std::pair<std::string_view, double>> line_;
  std::filesystem::file_time_type state_time_{};  // of trainer_state.json
};

/// Whether `folder` is the folder of a run: it holds one of the files that `RunReader` reads, or a
/// checkpoint.
bool is_run_folder(const std::filesystem::path& folder);

/// `root` if it is a run, and the runs in it, at most `depth` folders down, by name. Folders that
/// cannot be read are passed over, links to folders are not followed, and at most 10,000 runs are
/// found.
std::vector<std::filesystem::path> find_runs(const std::filesystem::path& root, int depth = 4);

}  // namespace gradus::runs
