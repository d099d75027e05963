#include "tasks/speech_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>

#include <numeric>

namespace gradus::tasks {

namespace fs = std::filesystem;

std::shared_ptr<const Dataset> open_speech(const std::string& dataset_name,
                                           const std::string& splits, const std::string& column,
                                           int64_t skip_bad_rows) {
  std::error_code ignored;
  if (!fs::exists(dataset_name, ignored))
    throw Error("G-TASK-9", ErrorKind::usage,
                fmt::format("--dataset_name {}: there is no such file or folder", dataset_name),
                "Name a folder of sound files, or a CSV, JSONL or Parquet file.");
  AudioFolderOptions options;
  options.audio_column = column;
  options.skip_bad_rows = skip_bad_rows;
  if (fs::is_regular_file(dataset_name, ignored)) return open_audio_rows(dataset_name, options);
  std::vector<std::shared_ptr<const Dataset>> parts;
  for (size_t begin = 0; begin <= splits.size();) {
    const auto end = std::min(splits.find('+', begin), splits.size());
    options.split = splits.substr(begin, end - begin);
    if (options.split.empty() && !splits.empty())  // nothing at all: the folder itself
      throw Error("G-TASK-9", ErrorKind::usage,
                  fmt::format("'{}' names a split without a name", splits),
                  "Give names of splits, joined by +: train+validation.");
    parts.push_back(open_audio_rows(dataset_name, options));
    begin = end + 1;
  }
  return parts.size() == 1 ? parts.front() : concatenate(std::move(parts));
}

std::shared_ptr<const Dataset> first_clips(std::shared_ptr<const Dataset> rows,
                                           std::optional<int64_t> most) {
  if (!most || *most >= rows->size()) return rows;
  std::vector<int64_t> indices(static_cast<size_t>(*most));
  std::iota(indices.begin(), indices.end(), int64_t{0});
  return rows->select(std::move(indices));
}

void need_column(const Dataset& rows, const std::string& column, const char* flag) {
  if (rows.size() == 0) return;
  const auto row = rows.get(0);
  if (row.contains(column)) return;
  throw Error("G-TASK-9", ErrorKind::usage,
              fmt::format("--{} '{}' is not among the columns of the data set", flag, column),
              fmt::format("The columns are {}.", fmt::join(row.names(), ", ")));
}

Wav2Vec2FeatureExtractor load_feature_extractor(const ModelFlags& flags,
                                                const nlohmann::json& config) {
  for (const auto* folder : {&flags.model_name_or_path, &flags.config_name}) {
    std::error_code ignored;
    if (*folder && (fs::exists(fs::path(**folder) / "preprocessor_config.json", ignored) ||
                    fs::exists(fs::path(**folder) / "processor_config.json", ignored) ||
                    folder == &flags.model_name_or_path))
      return Wav2Vec2FeatureExtractor::from_pretrained(**folder);
  }
  Wav2Vec2FeatureExtractor extractor;
  const auto norm = config.find("feat_extract_norm");
  extractor.return_attention_mask = norm != config.end() && *norm == "layer";
  return extractor;
}

}  // namespace gradus::tasks
