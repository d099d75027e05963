#pragma once

#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/data/load_dataset.h>

#include <algorithm>
#include <memory>
#include <string>

#include "../silent_log.h"
#include "data/sources/column_kind.h"
#include "fuzz/memory_file.h"

namespace gradus::fuzz {

/// Touches every byte of a row.
inline size_t touch(const Example& row) {
  size_t bytes = 0;
  for (const auto& [name, value] : row)
    bytes += name.size() + sources::json_from_value(value)
                               .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                               .size();
  return bytes;
}

/// Reads a file as a table and as a stream: both give rows or `gradus::Error`. A file may claim any
/// number of rows, so only the first and the last ones are read.
inline void read_table(const uint8_t* data, size_t size, const std::string& format) {
  static const auto silence = set_log_sink(std::make_shared<testing::SilentLog>());
  constexpr int64_t kRows = 50;
  const MemoryFile file(data, size);
  const LoadOptions options{.format = format, .allow_empty = true, .threads = 1};
  try {
    const auto rows = load_dataset(file.path(), options);
    for (int64_t i = 0; i < std::min(rows->size(), kRows); ++i) touch(rows->get(i));
    for (int64_t i = std::max(kRows, rows->size() - kRows); i < rows->size(); ++i)
      touch(rows->get(i));
  } catch (const Error&) {
  }
  try {
    const auto stream = stream_dataset(file.path(), options);
    for (int64_t i = 0; i < kRows; ++i)
      if (const auto row = stream->next())
        touch(*row);
      else
        break;
    stream->load_state(stream->save_state());
    stream->next();
  } catch (const Error&) {
  }
}

}  // namespace gradus::fuzz
