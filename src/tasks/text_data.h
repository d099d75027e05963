#pragma once

#include <gradus/config/option_set.h>
#include <gradus/data/cached_map.h>
#include <gradus/data/load_dataset.h>
#include <gradus/train/trainer.h>

#include "tasks/model_source.h"

namespace gradus::tasks {

/// The flags of HF's scripts that name the data.
struct DataFlags {
  std::optional<std::string> dataset_name = std::nullopt;
  std::optional<std::string> dataset_config_name = std::nullopt;
  std::optional<std::string> train_file = std::nullopt;
  std::optional<std::string> validation_file = std::nullopt;
  std::optional<int64_t> max_train_samples = std::nullopt;
  std::optional<int64_t> max_eval_samples = std::nullopt;
  bool overwrite_cache = false;
  std::optional<int64_t> preprocessing_num_workers = std::nullopt;
  std::optional<std::string> format = std::nullopt;
  int64_t skip_bad_rows = 0;
  int64_t max_row_bytes = LoadOptions().max_row_bytes;
  int64_t max_expansion = LoadOptions().max_expansion;
};
void add_options(OptionSet& options, DataFlags& flags);

/// Those of tasks that predict.
struct PredictFlags {
  std::optional<std::string> test_file = std::nullopt;
  std::optional<int64_t> max_predict_samples = std::nullopt;
};
void add_options(OptionSet& options, PredictFlags& flags);

/// Looks at names alone: whether each stage has data, and the files are there. `splits_train`:
/// validation rows may be taken from the training rows. Throws G-TASK-9 (usage).
void check_data_flags(const TrainingArguments& args, const DataFlags& data,
                      const PredictFlags& predict, bool splits_train);

/// Rows of one split. `where` names them in messages, `key` stands for their contents in the names
/// of cached files.
struct Split {
  std::shared_ptr<const Dataset> rows = nullptr;
  std::string where = {};
  std::string key = {};
  /// The source's own description of the columns; empty when it has none.
  std::vector<ColumnInfo> columns = {};

  explicit operator bool() const { return rows != nullptr; }
  std::vector<std::string> column_names() const;
  /// Null when there is no such column.
  const ColumnInfo* column(const std::string& name) const;
  DatasetRef reference() const { return rows ? DatasetRef(rows) : DatasetRef(); }
};

/// A file (or glob), or the split `name` of the data set folder `--dataset_name`; without rows when
/// neither is there.
Split open_split(const DataFlags& flags, const std::optional<std::string>& file,
                 const std::string& name, const LoadOptions& options = {});

/// Rows [first, last).
Split row_range(Split split, int64_t first, int64_t last);
/// At most that many rows from the front.
Split first_rows(Split split, std::optional<int64_t> most);
/// The order of `datasets`' shuffle(seed).
Split shuffled(Split split, int64_t seed);

/// How rows are prepared, beside the function.
struct Preparation {
  std::string task;      ///< first part of the cached file's name
  std::string settings;  ///< everything the function depends on
  std::string wanted;  ///< for the message when no row is left: "at least one block of 128 tokens"
  int64_t batch_size = 1000;
};

/// The rows that `function` makes, kept in the cache under the contents of the data, the tokenizer
/// and the settings. The result keeps a copy of `function`, which is called again if the cache
/// turns out to be damaged. Throws G-TASK-10 when it makes none.
Split prepare_split(const Split& split, const MapFunction& function, const Preparation& preparation,
                    const ModelFlags& model, const DataFlags& data, bool show_progress);

/// The text in a column of a row. Throws G-TASK-11 when it holds something else, nothing included.
const std::string& text_of(const Example& row, const std::string& column, const std::string& where);

}  // namespace gradus::tasks
