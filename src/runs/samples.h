#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace gradus::runs {

/// What a file of samples holds.
enum class SampleKind { table, image, audio };

/// A file in a run folder that shows what the model makes: generated text, completions with their
/// rewards, predictions, images, sound.
struct SampleFile {
  std::filesystem::path path;
  std::string name;  ///< its path in the run folder
  SampleKind kind = SampleKind::table;
  double time = 0;    ///< when it was last written, in seconds since 1970
  int64_t bytes = 0;  ///< its size
};

/// The samples of a run, newest first; at most 500. Links are not followed, and checkpoints are
/// passed over.
std::vector<SampleFile> list_samples(const std::filesystem::path& run_folder);

/// Rows of a table of samples: `{"columns": [names], "rows": [[cells]], "total": rows in all}`. A
/// file that cannot be read gives `{"error": why}`.
nlohmann::json read_samples(const SampleFile& file, int64_t from, int64_t count);

/// The media type of an image or sound, by the name of its file; none for other files.
std::optional<std::string> media_type(const std::filesystem::path& file);

}  // namespace gradus::runs
