#include "tasks/text_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/formats/checksum.h>
#include <gradus/version.h>

#include <numeric>
#include <set>

#include "core/list_folder.h"
#include "data/numpy_random.h"

namespace gradus::tasks {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kFormats[] = {"parquet", "arrow", "csv", "tsv", "json", "jsonl", "text"};
constexpr OptionRow<DataFlags> kDataRows[] = {
    {&DataFlags::dataset_name, "dataset_name", Group::data, any_value(),
     "The folder of a data set with splits (`save_to_disk`), in place of files."},
    {&DataFlags::dataset_config_name, "dataset_config_name", Group::data, any_value(),
     "Accepted for compatibility: a folder holds one configuration."},
    {&DataFlags::train_file, "train_file", Group::data, any_value(),
     "The file to train on: .txt .csv .json .jsonl .parquet .arrow, also .gz and .zst."},
    {&DataFlags::validation_file, "validation_file", Group::data, any_value(),
     "The file to evaluate on."},
    {&DataFlags::max_train_samples, "max_train_samples", Group::data, at_least(1),
     "Train on the first rows only."},
    {&DataFlags::max_eval_samples, "max_eval_samples", Group::data, at_least(1),
     "Evaluate on the first rows only."},
    {&DataFlags::overwrite_cache, "overwrite_cache", Group::data, any_value(),
     "Prepare the data again even if the result of an earlier run exists."},
    {&DataFlags::preprocessing_num_workers, "preprocessing_num_workers", Group::data, at_least(1),
     "Split the rows into this many parts, none of which shares a batch with another; threads are "
     "used in any case."},
    {&DataFlags::format, "format", Group::data, one_of(kFormats),
     "The form of the data files; unset: by their extension.", Origin::gradus},
    {&DataFlags::skip_bad_rows, "skip_bad_rows", Group::data, at_least(0),
     "Skip up to this many rows that cannot be read; each is reported.", Origin::gradus},
    {&DataFlags::max_row_bytes, "max_row_bytes", Group::data, at_least(1),
     "Text, JSON and CSV files: a row of more bytes is an error.", Origin::gradus},
    {&DataFlags::max_expansion, "max_expansion", Group::data, at_least(1),
     "A packed data file (.gz, .zst, Parquet, compressed Arrow) may take this many times its size "
     "when it is opened, and in any case 256 MiB.",
     Origin::gradus},
};
constexpr OptionRow<PredictFlags> kPredictRows[] = {
    {&PredictFlags::test_file, "test_file", Group::data, any_value(), "The file to predict on."},
    {&PredictFlags::max_predict_samples, "max_predict_samples", Group::data, at_least(1),
     "Predict on the first rows only."},
};

[[noreturn]] void refuse_data(const std::string& message, const std::string& advice) {
  throw Error("G-TASK-9", ErrorKind::usage, message, advice);
}

void check_file(const char* flag, const std::optional<std::string>& file) {
  if (!file || file->find_first_of("*?[") != std::string::npos || fs::exists(expand_user(*file)))
    return;
  refuse_data(fmt::format("there is no file {} (--{})", *file, flag), "Check the path.");
}

// The files' contents, not their names or times.
std::string contents_key(const std::vector<fs::path>& files) {
  std::string key;
  for (const auto& file : files) {
    const auto sum = file_checksum(file);
    key += fmt::format("{} {:08x};", sum.size, sum.checksum);
  }
  return key;
}

// The words that stand for a split in names of files, as `datasets` reads them.
const std::vector<std::string>& words_for(const std::string& split) {
  static const std::vector<std::string> train = {"train", "training"},
                                        validation = {"validation", "valid", "dev", "val"},
                                        test = {"test", "testing", "eval", "evaluation"}, none;
  return split == "train"        ? train
         : split == "validation" ? validation
         : split == "test"       ? test
                                 : none;
}

// "train.csv", "train-00000-of-00001.parquet": the word, then something that is no letter.
bool names_split(const std::string& file, const std::string& split) {
  auto words = words_for(split);
  words.push_back(split);
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return file.starts_with(word) && (file.size() == word.size() ||
                                      !std::isalpha(static_cast<unsigned char>(file[word.size()])));
  });
}

// The files of a split in a folder as hubs lay them out: by name, in the folder or its `data`.
// Files without any such name are the training rows.
std::vector<std::string> split_files(const fs::path& folder, const std::string& split) {
  std::vector<std::string> found, all;
  bool named = false;
  for (const auto& place : {folder, folder / "data"}) {
    if (!fs::is_directory(place)) continue;
    for (const auto& path : list_folder(place)) {
      static const std::set<std::string> kKinds = {".csv",   ".tsv", ".json", ".jsonl", ".parquet",
                                                   ".arrow", ".txt", ".gz",   ".zst"};
      const auto file = path.filename().string();
      if (!fs::is_regular_file(path) || !kKinds.contains(path.extension().string()) ||
          file == "dataset_info.json" || file == "state.json")
        continue;
      all.push_back(path.string());
      if (names_split(file, split)) found.push_back(path.string());
      for (const auto* each : {"train", "validation", "test"}) named |= names_split(file, each);
    }
  }
  if (!named && split == "train") found = all;
  std::sort(found.begin(), found.end());
  return found;
}

// What `--dataset_name` holds for a split; no path when nothing.
std::vector<std::string> folder_paths(const fs::path& path, const std::string& split) {
  if (fs::exists(path / "dataset_dict.json")) return {path.string()};
  if (fs::is_directory(path / split)) return {(path / split).string()};
  if (fs::exists(path / "state.json") || !fs::is_directory(path))
    return split == "train" ? std::vector{path.string()} : std::vector<std::string>();
  return split_files(path, split);
}

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 14695981039346656037ull;
  for (const unsigned char byte : text) hash = (hash ^ byte) * 1099511628211ull;
  return hash;
}

}  // namespace

void add_options(OptionSet& options, DataFlags& flags) {
  options.add(flags, std::span<const OptionRow<DataFlags>>(kDataRows));
}
void add_options(OptionSet& options, PredictFlags& flags) {
  options.add(flags, std::span<const OptionRow<PredictFlags>>(kPredictRows));
}

void check_data_flags(const TrainingArguments& args, const DataFlags& data,
                      const PredictFlags& predict, bool splits_train) {
  if (data.dataset_name && !fs::exists(expand_user(*data.dataset_name)))
    refuse_data("there is no folder " + *data.dataset_name + " (--dataset_name)",
                "Name a folder that save_to_disk wrote, or give --train_file and "
                "--validation_file; gradus does not fetch data sets from a hub.");
  if (data.dataset_name && (data.train_file || data.validation_file))
    refuse_data("both --dataset_name and files of data are given: expected one of them",
                "Leave one out.");
  check_file("train_file", data.train_file);
  check_file("validation_file", data.validation_file);
  check_file("test_file", predict.test_file);
  if (data.dataset_name) return;
  if (args.do_train && !data.train_file)
    refuse_data("--do_train requires a train dataset: --train_file is not set",
                "Name the file to train on.");
  const bool can_evaluate = data.validation_file || (splits_train && data.train_file) ||
                            (!splits_train && predict.test_file);
  if (args.do_eval && !can_evaluate)
    refuse_data("--do_eval requires a validation dataset: there is nothing to evaluate on",
                "Name the file with --validation_file.");
  if (args.do_predict && !predict.test_file)
    refuse_data("--do_predict requires a test dataset: --test_file is not set",
                "Name the file with --test_file.");
}

std::vector<std::string> Split::column_names() const {
  std::vector<std::string> names;
  for (const auto& each : columns) names.push_back(each.name);
  return names.empty() ? rows->column_names() : names;
}

const ColumnInfo* Split::column(const std::string& name) const {
  for (const auto& each : columns)
    if (each.name == name) return &each;
  return nullptr;
}

Split open_split(const DataFlags& flags, const std::optional<std::string>& file,
                 const std::string& name, const LoadOptions& given) {
  if (!file && !flags.dataset_name) return {};
  auto options = given;
  options.format = flags.format.value_or("");
  options.skip_bad_rows = flags.skip_bad_rows;
  options.max_row_bytes = flags.max_row_bytes;
  options.max_expansion = flags.max_expansion;
  const auto paths =
      file ? std::vector{*file} : folder_paths(expand_user(*flags.dataset_name), name);
  if (paths.empty()) return {};
  if (!file && fs::exists(fs::path(paths.front()) / "dataset_dict.json")) options.split = name;
  try {
    const auto table = load_dataset(paths, options);
    return {.rows = table,
            .where = file ? *file : *flags.dataset_name + ", split " + name,
            .key = contents_key(resolve_data_files(paths, options)) +
                   fmt::format("{} {};", options.format, table->skipped_rows()),
            .columns = table->columns()};
  } catch (const Error& error) {
    if (!file && error.id() == "G-SRC-10") return {};  // the folder has no such split
    throw;
  }
}

Split row_range(Split split, int64_t first, int64_t last) {
  std::vector<int64_t> indices(static_cast<size_t>(std::max<int64_t>(last - first, 0)));
  std::iota(indices.begin(), indices.end(), first);
  split.rows = split.rows->select(std::move(indices));
  split.key += fmt::format("rows {} {};", first, last);
  return split;
}

Split first_rows(Split split, std::optional<int64_t> most) {
  if (!split || !most || *most >= split.rows->size()) return split;
  return row_range(std::move(split), 0, *most);
}

Split shuffled(Split split, int64_t seed) {
  split.rows =
      split.rows->select(data::NumpyRandom(uint64_t(seed)).permutation(split.rows->size()));
  split.key += fmt::format("shuffled {};", seed);
  return split;
}

namespace {

// Without a place for the cache the rows stay in memory.
std::shared_ptr<Dataset> map_through(const std::shared_ptr<const Dataset>& rows,
                                     const MapFunction& function, MapOptions options) {
  try {
    return map_rows(rows, function, options);
  } catch (const Error& error) {
    if (error.id() != "G-IO-2" && error.id() != "G-IO-3") throw;
    log_warning("the prepared rows are kept in memory, not in the cache: " + error.message());
  }
  options.cache_key.clear();
  return map_rows(rows, function, options);
}

}  // namespace

Split prepare_split(const Split& split, const MapFunction& function, const Preparation& preparation,
                    const ModelFlags& model, const DataFlags& data, bool show_progress) {
  MapOptions options{.batch_size = preparation.batch_size,
                     .runs = data.preprocessing_num_workers.value_or(1),
                     .overwrite_cache = data.overwrite_cache,
                     .description = show_progress ? "preparing " + split.where : std::string()};
  if (model.cache_dir) options.cache_dir = expand_user(*model.cache_dir);
  options.cache_key =
      fmt::format("{}-{:016x}", preparation.task,
                  fnv1a(fmt::format("{}|{}|{}|{}|{}|{}", kVersion, split.key, tokenizer_key(model),
                                    preparation.settings, options.runs, options.batch_size)));
  auto prepared = split;
  prepared.rows = map_through(split.rows, function, options);
  prepared.columns.clear();
  if (prepared.rows->size() == 0)
    throw Error("G-TASK-10", ErrorKind::data,
                fmt::format("{} leaves no row: expected {}", split.where, preparation.wanted),
                "Give more data, or shorter blocks.");
  return prepared;
}

const std::string& text_of(const Example& row, const std::string& column,
                           const std::string& where) {
  const auto& value = row.at(column);
  if (value.is_string()) return value.str();
  throw Error("G-TASK-11", ErrorKind::data,
              fmt::format("{}: column '{}' holds {}, expected text", where, column,
                          value.is_null() ? "null" : value.type_name()),
              value.is_null() ? "In CSV files empty fields and words such as NA, None and null are "
                                "read as null: fill the field, or use JSON lines."
                              : "Name the column that holds the text.");
}

}  // namespace gradus::tasks
