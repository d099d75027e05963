#pragma once

#include <gradus/data/example.h>
#include <torch/types.h>

#include <deque>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradus {

/// The table of the newest completions, which `log_completions` prints and writes as Parquet.
/// Thread-safety: none.
class CompletionsLog {
 public:
  /// Keeps as many completions as a generation batch has.
  explicit CompletionsLog(int64_t most) : most_(size_t(most)) {}

  /// Adds completions; each value of `cells` is one list of them all.
  void add(const std::vector<std::pair<std::string, std::vector<Value>>>& cells);
  /// Adds those of another table.
  void add(const CompletionsLog& others);
  /// Writes `completions_00012.parquet` into the folder. The columns are those of trl: step,
  /// prompt, completion, one for each reward, further ones, advantage. Throws `Error` G-IO-2.
  void save(const std::filesystem::path& folder, int64_t step) const;
  /// Prints the table, or `limit` rows of it; with `unique_prompts` one row of each prompt.
  void print(int64_t step, std::optional<int64_t> limit, bool unique_prompts) const;

  /// What checkpoints keep.
  nlohmann::json state() const;
  /// Takes it back.
  void load(const nlohmann::json& state);
  /// Forgets all completions.
  void clear() { rows_.clear(); }

 private:
  size_t most_;
  std::deque<Example> rows_;
};

/// The rows as a table with frames, `width` characters wide. The first row has the names.
std::string framed_table(const std::string& title,
                         const std::vector<std::vector<std::string>>& rows, size_t width);

}  // namespace gradus
