#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/memory.h>
#include <gradus/data/load_dataset.h>
#include <gradus/data/token_file.h>

#include "data/sources/arrow_table.h"
#include "data/sources/csv_source.h"
#include "data/sources/source_errors.h"
#include "data/sources/text_rows.h"

namespace gradus {
namespace sources {
namespace {

std::shared_ptr<TableDataset> load_tokens(const std::vector<SourceFile>& files,
                                          const LoadOptions& options) {
  std::vector<std::filesystem::path> paths;
  for (const auto& file : files) paths.push_back(file.path);
  return token_windows(paths, {.block_size = options.block_size});
}

std::shared_ptr<TableDataset> load_files(const std::vector<SourceFile>& files,
                                         const LoadOptions& options) {
  switch (files.front().format) {
    case Format::text: return load_text(files, options);
    case Format::json:
    case Format::json_lines: return load_json(files, options);
    case Format::tokens: return load_tokens(files, options);
    case Format::csv: return load_csv(files, options);
#ifdef GRADUS_WITH_ARROW
    case Format::arrow: return load_arrow(files, options);
    case Format::parquet: return load_parquet(files, options);
#else
    default: break;
#endif
  }
  throw needs_arrow("reading " + files.front().path.string());
}

std::string reading(const std::vector<SourceFile>& files) {
  return "reading " + files.front().path.string() +
         (files.size() > 1 ? fmt::format(" and {} more files", files.size() - 1) : "");
}

}  // namespace
}  // namespace sources

std::shared_ptr<TableDataset> load_dataset(const DataFiles& given, const LoadOptions& options) {
  const auto files = sources::resolve_files(given, options);
  auto dataset = name_memory_errors([&] { return sources::reading(files); },
                                    [&] { return sources::load_files(files, options); });
  if (dataset->size() == 0 && !options.allow_empty) {
    const auto more = files.size() > 1 ? fmt::format(" and {} more files hold", files.size() - 1)
                                       : std::string(" holds");
    throw Error(
        "G-SRC-3", ErrorKind::data,
        fmt::format("{}{} no rows{}", files.front().path.string(), more,
                    dataset->skipped_rows() > 0 ? fmt::format(" that can be read ({} were skipped)",
                                                              dataset->skipped_rows())
                                                : ""),
        "Check that it is the right file and that it was written completely.");
  }
  return dataset;
}

bool arrow_available() {
#ifdef GRADUS_WITH_ARROW
  return true;
#else
  return false;
#endif
}

}  // namespace gradus
