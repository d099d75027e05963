#include "data/sources/source_files.h"

#include <fmt/format.h>
#include <glob.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/nearest.h>

#include <cerrno>
#include <limits>
#include <thread>

#include "core/file_errors.h"
#include "core/list_folder.h"
#include "data/sources/source_errors.h"

namespace gradus {
namespace fs = std::filesystem;
namespace sources {
namespace {

struct Known {
  std::string_view extension;  // with its dot; empty: only as a --format word
  std::string_view name;
  Format format;
};
constexpr Known kKnown[] = {
    {".parquet", "parquet", Format::parquet},
    {".arrow", "arrow", Format::arrow},
    {".csv", "csv", Format::csv},
    {".tsv", "tsv", Format::csv},
    {".json", "json", Format::json},
    {".jsonl", "jsonl", Format::json_lines},
    {".ndjson", "jsonl", Format::json_lines},
    {".txt", "text", Format::text},
    {".text", "text", Format::text},
    {".md", "text", Format::text},
    {".bin", "tokens", Format::tokens},
};

const Known* by_extension(const fs::path& extension) {
  for (const auto& known : kKnown)
    if (extension == known.extension) return &known;
  return nullptr;
}

const Known& by_name(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& known : kKnown) {
    if (known.name == name) return known;
    if (names.empty() || names.back() != known.name) names.emplace_back(known.name);
  }
  throw Error("G-SRC-2", ErrorKind::usage,
              fmt::format("the data format \"{}\" is not known; expected {}", name, join_or(names)),
              did_you_mean(name, names));
}

bool is_text_form(Format format) {
  return format == Format::csv || format == Format::json || format == Format::json_lines ||
         format == Format::text;
}

// Null when the name says nothing we know.
std::optional<SourceFile> classify(const fs::path& path, const LoadOptions& options) {
  SourceFile file{.path = path};
  fs::path name = path.filename();
  if (name.extension() == ".gz") file.compression = Compression::gzip;
  if (name.extension() == ".zst") file.compression = Compression::zstd;
  if (file.compression != Compression::none) name = name.stem();
  const Known* known =
      options.format.empty() ? by_extension(name.extension()) : &by_name(options.format);
  if (known == nullptr) return std::nullopt;
  file.format = known->format;
  file.delimiter = options.delimiter.value_or(known->name == "tsv" ? '\t' : ',');
  if (file.compression != Compression::none && !is_text_form(file.format))
    throw Error("G-SRC-2", ErrorKind::data,
                fmt::format("{}: only text formats may be compressed, and this is {}",
                            path.string(), known->name),
                "Unpack the file first.");
  return file;
}

SourceFile classify_or_throw(const fs::path& path, const LoadOptions& options) {
  auto file = classify(path, options);
  if (file) return *file;
  throw Error(
      "G-SRC-2", ErrorKind::data,
      fmt::format("cannot tell the format of {}: its extension is \"{}\"", path.string(),
                  path.extension().string()),
      "Known are .parquet .arrow .csv .tsv .json .jsonl .txt .md .bin, the text formats also "
      "with .gz or .zst. "
      "For other names set --format (LoadOptions::format).");
}

// The shards of a folder written by `datasets.save_to_disk`, in the order of its state.json.
std::vector<fs::path> saved_shards(const fs::path& folder) {
  const auto state_file = folder / "state.json";
  const auto state = read_json(state_file);
  std::vector<fs::path> shards;
  if (const auto list = state.find("_data_files");
      state.is_object() && list != state.end() && list->is_array())
    for (const auto& entry : *list)
      if (entry.is_object() && entry.value("filename", nlohmann::json()).is_string())
        shards.push_back(folder / entry["filename"].get<std::string>());
  if (shards.empty())
    throw Error("G-SRC-10", ErrorKind::data,
                fmt::format("{} lists no \"_data_files\"", state_file.string()),
                "The folder is not, or not completely, written by datasets.save_to_disk.");
  return shards;
}

fs::path choose_split(const fs::path& folder, const std::string& wanted) {
  const auto document = read_json(folder / "dataset_dict.json");
  std::vector<std::string> splits;
  if (document.is_object() && document.contains("splits") && document["splits"].is_array())
    for (const auto& split : document["splits"])
      if (split.is_string()) splits.push_back(split.get<std::string>());
  if (wanted.empty() && splits.size() == 1) return folder / splits.front();
  if (!wanted.empty() && std::find(splits.begin(), splits.end(), wanted) != splits.end())
    return folder / wanted;
  throw Error("G-SRC-10", ErrorKind::data,
              wanted.empty()
                  ? fmt::format("{} holds several splits: {}", folder.string(), join_or(splits))
                  : fmt::format("{} has no split \"{}\"; it holds {}", folder.string(), wanted,
                                join_or(splits)),
              "Name one with --split (LoadOptions::split), or give its own folder.");
}

// Data files that lie in a plain folder; they must be of one format.
std::vector<SourceFile> plain_folder(const fs::path& folder, const LoadOptions& options) {
  std::vector<SourceFile> found;
  for (const auto& path : list_folder(folder))
    if (fs::is_regular_file(path) && path.filename().string().front() != '.')
      if (auto file = classify(path, options)) found.push_back(std::move(*file));
  // A card or a JSON description beside the real data is not data.
  const auto is_main = [](const SourceFile& f) {
    return f.format == Format::parquet || f.format == Format::arrow;
  };
  if (std::any_of(found.begin(), found.end(), is_main))
    std::erase_if(found, [&](const auto& f) { return !is_main(f); });
  if (found.empty())
    throw Error("G-SRC-10", ErrorKind::data,
                fmt::format("the folder {} holds no data file of a known format", folder.string()),
                "Give a file, a pattern such as \"data/*.jsonl\", or a folder written by "
                "datasets.save_to_disk.");
  return found;
}

std::vector<SourceFile> open_folder(fs::path folder, const LoadOptions& options) {
  if (fs::exists(folder / "dataset_dict.json")) folder = choose_split(folder, options.split);
  if (!fs::exists(folder / "state.json")) return plain_folder(folder, options);
  std::vector<SourceFile> files;
  for (auto& shard : saved_shards(folder))
    files.push_back({.path = std::move(shard), .format = Format::arrow});
  return files;
}

std::vector<fs::path> expand_pattern(const std::string& pattern) {
  glob_t matches{};
  const int code = ::glob(pattern.c_str(), 0, nullptr, &matches);
  std::vector<fs::path> paths;
  if (code == 0)
    for (size_t i = 0; i < matches.gl_pathc; ++i) paths.emplace_back(matches.gl_pathv[i]);
  ::globfree(&matches);
  return paths;
}

Error no_such_file(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code ignored;
  const auto folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    names.push_back(entry.path().filename().string());
  auto advice = did_you_mean(path.filename().string(), names);
  if (advice.empty())
    advice = "Check the path; a pattern such as \"data/*.jsonl\" must match at least one file.";
  return {"G-SRC-1", ErrorKind::data, fmt::format("no data file {}", path.string()), advice};
}

}  // namespace

std::vector<SourceFile> resolve_files(const DataFiles& files, const LoadOptions& options) {
  std::vector<SourceFile> resolved;
  const auto add = [&](const fs::path& path) {
    if (fs::is_directory(path)) {
      auto inside = open_folder(path, options);
      std::move(inside.begin(), inside.end(), std::back_inserter(resolved));
    } else {
      resolved.push_back(classify_or_throw(path, options));
    }
  };
  for (const auto& given : files.paths()) {
    const auto path = expand_user(given);
    std::error_code code;
    if (fs::exists(path, code)) {
      add(path);
    } else {
      if (code && code.value() != ENOENT) throw cannot_read(path, code.value());
      const auto matches = path.string().find_first_of("*?[") == std::string::npos
                               ? std::vector<fs::path>{}
                               : expand_pattern(path.string());
      if (matches.empty()) throw no_such_file(path);
      for (const auto& match : matches) add(match);
    }
  }
  if (resolved.empty())
    throw Error("G-SRC-1", ErrorKind::usage, "no data file was given",
                "Give a file, a pattern or a folder.");
  for (const auto& file : resolved)
    if (file.format != resolved.front().format)
      throw Error("G-SRC-2", ErrorKind::data,
                  fmt::format("{} and {} are of different formats", resolved.front().path.string(),
                              file.path.string()),
                  "Load them one by one and join them with concatenate().");
  return resolved;
}

int64_t expansion_limit(int64_t size, const LoadOptions& options) {
  constexpr int64_t kAlways = int64_t{256} << 20;
  int64_t limit = 0;
  if (__builtin_mul_overflow(size, options.max_expansion, &limit))
    return std::numeric_limits<int64_t>::max();
  return std::max(limit, kAlways);
}

int64_t thread_count(int64_t wanted) {
  if (wanted > 0) return wanted;
  return std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, 8);
}

}  // namespace sources

std::vector<fs::path> resolve_data_files(const DataFiles& files, const LoadOptions& options) {
  std::vector<fs::path> paths;
  for (auto& file : sources::resolve_files(files, options)) paths.push_back(std::move(file.path));
  return paths;
}

}  // namespace gradus
