#include <fmt/format.h>
#include <gradus/audio/audio_dataset.h>
#include <gradus/core/error.h>
#include <gradus/core/printable.h>
#include <gradus/data/load_dataset.h>
#include <gradus/data/padding.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "audio/sound_file.h"
#include "core/list_folder.h"

namespace gradus {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostFiles = 50'000'000;

/// A path in a cell, made to start at `folder`.
Value with_folder(const Value& cell, const fs::path& folder) {
  if (cell.is_string() && is_file_content(cell.str())) return cell;
  if (cell.is_string()) return Value((folder / cell.str()).string());  // an absolute one stays
  if (!cell.is_nested() || !cell.json().is_object()) return cell;
  const auto path = cell.json().find("path");
  const auto bytes = cell.json().find("bytes");
  const bool has_bytes = bytes != cell.json().end() && bytes->is_string();
  if (has_bytes || path == cell.json().end() || !path->is_string()) return cell;
  return Value((folder / path->get<std::string>()).string());
}

std::shared_ptr<const Dataset> with_paths(const std::shared_ptr<const Dataset>& rows,
                                          const fs::path& folder, const std::string& from,
                                          const std::string& to) {
  return rows->map([=](const Example& row) {
    Example result;
    for (const auto& [name, value] : row)
      if (name == from)
        result.set(to, with_folder(value, folder));
      else
        result.set(name, value);
    return result;
  });
}

std::shared_ptr<const Dataset> table_rows(const fs::path& file, const AudioFolderOptions& options) {
  LoadOptions load;
  load.skip_bad_rows = options.skip_bad_rows;
  const auto table = load_dataset(file, load);
  const auto names = table->column_names();
  const bool by_file_name =
      std::find(names.begin(), names.end(), options.audio_column) == names.end() &&
      std::find(names.begin(), names.end(), "file_name") != names.end();
  return with_paths(table, file.parent_path(), by_file_name ? "file_name" : options.audio_column,
                    options.audio_column);
}

std::vector<fs::path> sound_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::vector<fs::path> folders{folder};
  while (!folders.empty()) {
    const auto next = folders.back();
    folders.pop_back();
    for (const auto& entry : list_folder(next)) {
      std::error_code ignored;
      if (fs::is_directory(entry, ignored) && !fs::is_symlink(entry, ignored))
        folders.push_back(entry);
      else if (is_sound_file(entry) && files.size() < kMostFiles)
        files.push_back(entry);
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::shared_ptr<const Dataset> rows_of_files(const fs::path& folder, const std::string& column) {
  std::vector<Example> rows;
  for (const auto& file : sound_files(folder)) {
    Example row{{column, Value(file.string())}};
    if (file.parent_path() != folder) row.set("label", file.parent_path().filename().string());
    rows.push_back(std::move(row));
  }
  if (rows.empty())
    throw Error("G-AUDIO-9", ErrorKind::data,
                fmt::format("{} holds no sound", printable(folder.string())),
                "Expected are WAV, FLAC, OGG or MP3 files, or metadata.csv, metadata.jsonl or "
                "metadata.parquet with a column file_name.");
  return from_examples(std::move(rows));
}

/// Whether a folder has subfolders for splits, and no file that could hold one.
bool has_only_folders(const fs::path& folder) {
  const auto entries = list_folder(folder);
  std::error_code ignored;
  return !fs::exists(folder / "data", ignored) && !entries.empty() &&
         std::all_of(entries.begin(), entries.end(), [](const fs::path& entry) {
           std::error_code unknown;
           return fs::is_directory(entry, unknown) || is_sound_file(entry);
         });
}

[[noreturn]] void refuse_split(const fs::path& folder, const std::string& split) {
  std::string names;
  for (const auto& entry : list_folder(folder)) {
    std::error_code ignored;
    if (fs::is_directory(entry, ignored))
      names += (names.empty() ? "" : ", ") + entry.filename().string();
  }
  throw Error("G-AUDIO-9", ErrorKind::data,
              fmt::format("{} has no split '{}': there is no such subfolder",
                          printable(folder.string()), split),
              names.empty() ? "Put the sound into a folder named for the split."
                            : fmt::format("Its subfolders are {}.", names));
}

}  // namespace

bool is_sound_file(const fs::path& file) {
  static constexpr std::array kEndings = {".wav", ".flac", ".ogg", ".mp3", ".oga", ".aiff", ".au"};
  auto ending = file.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char letter) { return char(std::tolower(letter)); });
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
}

std::shared_ptr<const Dataset> open_audio_rows(const fs::path& path,
                                               const AudioFolderOptions& options) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return table_rows(path, options);
  auto folder = path;
  if (!options.split.empty() && fs::is_directory(path / options.split, ignored))
    folder = path / options.split;
  for (const auto* name : {"metadata.csv", "metadata.jsonl", "metadata.parquet"})
    if (fs::exists(folder / name, ignored)) return table_rows(folder / name, options);
  // A folder of tables: train.csv, data/train-00000-of-00002.parquet, and the like.
  if (!options.split.empty() && folder == path) {
    for (const auto* ending : {".csv", ".jsonl", ".json", ".parquet"})
      if (fs::exists(path / (options.split + ending), ignored))
        return table_rows(path / (options.split + ending), options);
    if (fs::is_directory(path, ignored) && has_only_folders(path))
      refuse_split(path, options.split);
    LoadOptions load;
    load.skip_bad_rows = options.skip_bad_rows;
    load.split = options.split;
    return with_paths(load_dataset(path, load), path, options.audio_column, options.audio_column);
  }
  return rows_of_files(folder, options.audio_column);
}

void Wav2Vec2Processor::save_pretrained(const fs::path& directory) const {
  CTCTokenizer::save_pretrained(directory);
  extractor_.save_pretrained(directory);
}

Batch DataCollatorCTCWithPadding::operator()(std::vector<Example> rows) const {
  std::vector<torch::Tensor> clips;
  std::vector<torch::Tensor> kept;  // labels as tensors, which the spans below refer to
  std::vector<std::span<const int64_t>> labels;
  const bool has_labels = !rows.empty() && rows.front().contains("labels");
  for (const auto& row : rows) {
    clips.push_back(row.at("input_values").to_tensor());
    if (!has_labels) continue;
    kept.push_back(row.at("labels").to_tensor().to(torch::kLong).contiguous());
    labels.emplace_back(kept.back().const_data_ptr<int64_t>(),
                        static_cast<size_t>(kept.back().numel()));
  }
  auto batch = options_.feature_extractor.pad(clips, options_.pad_to_multiple_of);
  if (has_labels)
    batch.set("labels",
              pad_lists(labels, -100, PaddingSide::right, options_.pad_to_multiple_of_labels));
  return batch;
}

}  // namespace gradus
