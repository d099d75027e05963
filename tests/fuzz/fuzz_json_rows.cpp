#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/data/load_dataset.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../silent_log.h"
#include "fuzz/fuzz_target.h"

namespace {

/// The input as a file that lies in memory.
struct MemoryFile {
  MemoryFile(const uint8_t* data, size_t size) : descriptor(::memfd_create("input", 0)) {
    if (::write(descriptor, data, size) != ssize_t(size)) std::abort();
  }
  ~MemoryFile() { ::close(descriptor); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor); }
  int descriptor;
};

void read_all(const std::string& path, const gradus::LoadOptions& options) try {
  const auto dataset = gradus::load_dataset(path, options);
  for (int64_t i = 0; i < dataset->size(); ++i) dataset->get(i);
} catch (const gradus::Error&) {
}

}  // namespace

/// Any bytes give rows or `gradus::Error`, as JSON lines, a JSON document, a field of one, and
/// text.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto silence = gradus::set_log_sink(std::make_shared<gradus::testing::SilentLog>());
  const MemoryFile file(data, size);
  read_all(file.path(), {.format = "jsonl", .skip_bad_rows = 3, .threads = 1});
  read_all(file.path(), {.format = "json", .threads = 1});
  read_all(file.path(), {.format = "json", .field = "data", .threads = 1});
  read_all(file.path(), {.format = "text", .text_unit = gradus::TextUnit::paragraph, .threads = 1});
  try {
    const auto stream =
        gradus::stream_dataset(file.path(), {.format = "jsonl", .skip_bad_rows = 3, .threads = 1});
    while (stream->next()) stream->load_state(stream->save_state());
  } catch (const gradus::Error&) {
  }
  return 0;
}
