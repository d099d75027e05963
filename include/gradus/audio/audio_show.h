#pragma once

#include <gradus/audio/audio.h>
#include <gradus/data/dataset.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace gradus {

/// Options of `audio_show`.
struct AudioShowOptions {
  std::string audio_column = "audio";  ///< Holds the sound.
  std::filesystem::path folder = {};   ///< Relative paths in cells start here.
  int64_t rows = 3;                    ///< First clips to describe one by one.
  int64_t sample = 10'000;             ///< Clips whose headers are read, spread evenly; 0: all.
};

/// What is in a set of sound: `{"rows", "sampled_rows", "unreadable", "formats": {name: count},
/// "sampling_rates": {rate: count}, "channels": {number: count}, "seconds": {"min", "mean", "max",
/// "total"}, "first_rows": [{"row", "name", "format", "sampling_rate", "channels", "seconds",
/// "peak", "columns": {name: value}}]}`. The total is that of the sampled rows.
///
/// A row that cannot be read has "error" in place of its properties. Only the first rows are
/// decoded, for "peak" (0 is silence); of the others headers are read. Throws `Error` G-DATA-1 when
/// there is no such column.
nlohmann::ordered_json audio_show(const Dataset& rows, const AudioShowOptions& options = {});

/// The same for people: the counts, then one line for each of the first rows.
std::string format_audio_show(const nlohmann::ordered_json& report);

/// The first rows as a page with players, which needs no other file. Of each clip the first 30
/// seconds can be heard. `title` is shown on top. Texts of files are escaped.
std::string audio_show_html(const Dataset& rows, const nlohmann::ordered_json& report,
                            const std::string& title, const AudioShowOptions& options = {});

/// Whether `folder` is a folder of sound rather than of data files: it has a sound file somewhere
/// below and no data file itself but metadata.csv, metadata.jsonl or metadata.parquet.
bool is_audio_folder(const std::filesystem::path& folder);

/// The column that holds sound in this row: the first one with a path to a sound file, or with
/// bytes of one. Empty when there is none.
std::string audio_column_of(const Example& row);

/// Sound as a WAV file of 16-bit samples. Samples beyond -1 and 1 are clipped.
std::string encode_wav(const AudioClip& clip);

}  // namespace gradus
