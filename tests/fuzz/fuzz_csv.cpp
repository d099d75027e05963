#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/sources/column_kind.h"
#include "data/sources/csv_source.h"
#include "fuzz/fuzz_target.h"

namespace {

using gradus::sources::SourceFile;

struct Silent : gradus::LogSink {
  void message(gradus::LogLevel, std::string_view) override {}
  void print(std::string_view) override {}
};

/// The input as a file that lies in memory.
struct MemoryFile {
  MemoryFile(const uint8_t* data, size_t size) : descriptor(::memfd_create("input", 0)) {
    if (::write(descriptor, data, size) != ssize_t(size)) std::abort();
  }
  ~MemoryFile() { ::close(descriptor); }
  SourceFile csv() const {
    return {.path = "/proc/self/fd/" + std::to_string(descriptor),
            .format = gradus::sources::Format::csv};
  }
  int descriptor;
};

std::string text_of(const gradus::Example& row) {
  std::string text;
  for (const auto& [name, value] : row)
    text += gradus::dump_json(gradus::sources::json_from_value(value)) + "\t";
  return text + "\n";
}

std::string read_all(const SourceFile& file, size_t block_size) try {
  const auto rows = gradus::sources::load_csv({file}, {.skip_bad_rows = 3}, block_size);
  std::string text;
  for (int64_t i = 0; i < rows->size(); ++i) text += text_of(rows->get(i));
  return text;
} catch (const gradus::Error& error) {
  return error.id();
}

/// From front to back; after every `every`th row saved and opened anew.
std::string stream_all(const SourceFile& file, size_t block_size, int64_t every) try {
  const auto open = [&] {
    return gradus::sources::open_csv_rows(
        file, {},
        std::make_shared<gradus::sources::BadRows>(gradus::sources::BadRows{.allowed = 1000000}),
        block_size);
  };
  auto rows = open();
  std::string text;
  for (int64_t count = 1; const auto row = rows->next(); ++count) {
    text += text_of(*row);
    if (count % every != 0) continue;
    const auto position = rows->position();
    rows = open();
    rows->seek(position);
  }
  return text;
} catch (const gradus::Error& error) {
  return error.id();
}

}  // namespace

/// Any bytes give rows or `gradus::Error`, and the same whatever the size of the blocks and
/// wherever a stream is taken up again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto silence = gradus::set_log_sink(std::make_shared<Silent>());
  const MemoryFile file(data, size);
  const auto whole = read_all(file.csv(), size_t{1} << 14);
  for (const size_t block : {16, 61})
    if (read_all(file.csv(), block) != whole) std::abort();
  if (stream_all(file.csv(), 61, 7) != stream_all(file.csv(), 61, 1000000)) std::abort();
  return 0;
}
