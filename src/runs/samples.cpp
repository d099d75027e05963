#include "runs/samples.h"

#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/data/data_show.h>
#include <sys/stat.h>

#include <algorithm>

namespace gradus::runs {
namespace fs = std::filesystem;
namespace {

constexpr size_t kMostSamples = 500;
constexpr int kSampleDepth = 3;
constexpr int64_t kLargestText = int64_t(64) << 20;

std::string lower_extension(const fs::path& file) {
  auto text = file.extension().string();
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return char(std::tolower(letter)); });
  return text;
}

bool is_table_of_samples(const fs::path& file) {
  const auto name = file.filename().string(), extension = lower_extension(file);
  const bool is_prediction =
      name.find("predict") != std::string::npos || name.find("completion") != std::string::npos ||
      name.find("sample") != std::string::npos || name.find("generat") != std::string::npos;
  if (name.ends_with("_results.json")) return false;  // metrics
  return is_prediction && (extension == ".parquet" || extension == ".jsonl" ||
                           extension == ".txt" || extension == ".json" || extension == ".csv");
}

void collect_samples(const fs::path& root, const fs::path& folder, int depth,
                     std::vector<SampleFile>& found) {
  std::error_code unknown;
  for (fs::directory_iterator entry(folder, unknown), end; !unknown && entry != end;
       entry.increment(unknown)) {
    const auto& path = entry->path();
    const auto name = path.filename().string();
    std::error_code kind;
    if (name.starts_with(".") || entry->is_symlink(kind)) continue;
    if (entry->is_directory(kind)) {
      if (depth > 0 && !name.starts_with("checkpoint-"))
        collect_samples(root, path, depth - 1, found);
      continue;
    }
    SampleFile file{path, path.lexically_relative(root).string()};
    if (const auto type = media_type(path))
      file.kind = type->starts_with("image/") ? SampleKind::image : SampleKind::audio;
    else if (!is_table_of_samples(path))
      continue;
    struct stat info{};
    if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    file.time = double(info.st_mtime);
    file.bytes = info.st_size;
    found.push_back(std::move(file));
    if (found.size() > kMostSamples * 20) return;
  }
}

nlohmann::json text_rows(const SampleFile& file, int64_t from, int64_t count) {
  const auto text = read_file(file.path);
  nlohmann::json columns = {"text"}, rows = nlohmann::json::array();
  int64_t number = 0;
  bool is_table = false;
  for (size_t at = 0; at < text.size();) {
    auto end = text.find('\n', at);
    if (end == std::string::npos) end = text.size();
    const auto line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    const auto cells = [&] {
      nlohmann::json found = nlohmann::json::array();
      auto rest = line;
      for (;;) {
        const auto tab = rest.find('\t');
        found.push_back(std::string(rest.substr(0, tab)));
        if (tab == std::string_view::npos) return found;
        rest.remove_prefix(tab + 1);
      }
    };
    // predict_results.txt begins with "index\tprediction".
    if (number == 0 && !is_table && line.starts_with("index\t")) {
      is_table = true;
      columns = cells();
      continue;
    }
    if (number >= from && number < from + count)
      rows.push_back(is_table ? cells() : nlohmann::json::array({std::string(line)}));
    ++number;
  }
  return {{"columns", columns}, {"rows", rows}, {"total", number}};
}

nlohmann::json json_rows(const SampleFile& file, int64_t from, int64_t count) {
  const auto document = read_json(file.path);
  nlohmann::json rows = nlohmann::json::array();
  const auto cell = [](const nlohmann::json& value) {
    return value.is_string() ? value : nlohmann::json(dump_json(value));
  };
  int64_t number = 0;
  if (document.is_object()) {
    for (const auto& [key, value] : document.items()) {
      if (number >= from && number < from + count) rows.push_back({key, cell(value)});
      ++number;
    }
    return {{"columns", {"id", "value"}}, {"rows", rows}, {"total", number}};
  }
  if (document.is_array())
    for (const auto& value : document) {
      if (number >= from && number < from + count)
        rows.push_back(nlohmann::json::array({cell(value)}));
      ++number;
    }
  return {{"columns", {"value"}}, {"rows", rows}, {"total", number}};
}

nlohmann::json table_rows(const SampleFile& file, int64_t from, int64_t count) {
  const auto shown = data_show(
      file.path, {.load = {.allow_empty = true, .threads = 1}, .rows = from + count, .sample = 1});
  nlohmann::json columns = nlohmann::json::array(), rows = nlohmann::json::array();
  for (const auto& column : shown.at("columns"))
    columns.push_back(column.at("name").get<std::string>());
  const auto& first = shown.at("first_rows");
  for (size_t i = size_t(from); i < first.size(); ++i) {
    nlohmann::json cells = nlohmann::json::array();
    for (const auto& column : columns) {
      const auto found = first[i].find(column.get<std::string>());
      cells.push_back(found == first[i].end() ? nlohmann::json() : nlohmann::json(*found));
    }
    rows.push_back(std::move(cells));
  }
  return {{"columns", columns}, {"rows", rows}, {"total", shown.at("rows").get<int64_t>()}};
}

}  // namespace

std::vector<SampleFile> list_samples(const fs::path& run_folder) {
  std::vector<SampleFile> found;
  collect_samples(run_folder, run_folder, kSampleDepth, found);
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.time != b.time ? a.time > b.time : a.name > b.name;
  });
  if (found.size() > kMostSamples) found.resize(kMostSamples);
  return found;
}

nlohmann::json read_samples(const SampleFile& file, int64_t from, int64_t count) {
  try {
    const auto extension = lower_extension(file.path);
    if (extension == ".parquet" || extension == ".jsonl" || extension == ".csv")
      return table_rows(file, from, count);
    if (file.bytes > kLargestText) return {{"error", "the file is too large to be shown"}};
    return extension == ".json" ? json_rows(file, from, count) : text_rows(file, from, count);
  } catch (const Error& error) {
    return {{"error", error.message()}};
  } catch (const std::exception& error) {
    return {{"error", error.what()}};
  }
}

std::optional<std::string> media_type(const fs::path& file) {
  static const std::map<std::string, std::string> kTypes = {
      {".png", "image/png"},   {".jpg", "image/jpeg"}, {".jpeg", "image/jpeg"},
      {".webp", "image/webp"}, {".gif", "image/gif"},  {".wav", "audio/wav"},
      {".flac", "audio/flac"}, {".mp3", "audio/mpeg"}, {".ogg", "audio/ogg"},
  };
  const auto found = kTypes.find(lower_extension(file));
  return found != kTypes.end() ? std::optional(found->second) : std::nullopt;
}

}  // namespace gradus::runs
