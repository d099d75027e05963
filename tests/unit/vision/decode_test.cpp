#include <gradus/core/files.h>
#include <gradus/vision/decode.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>

#include "../error_of.h"

namespace gradus {
namespace {

int64_t peak_memory() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return int64_t(used.ru_maxrss) << 10;
}

// A text of 2 GB in a file of 282 bytes: libpng would make room for it before it reads.
TEST(DecodeImage, AChunkThatIsLongerThanTheFileTakesNoMemory) {
  const auto bytes = read_file(std::string(GRADUS_SOURCE_DIR) +
                               "/tests/fuzz/seeds/images/png_text_beyond_the_end");
  const auto before = peak_memory();
  for (const bool only_header : {true, false})
    expect_error(
        [&] {
          if (only_header)
            image_info(bytes, {.name = "a.png"});
          else
            decode_image(bytes, {.name = "a.png"});
        },
        "G-IMG-2", {"a.png is damaged: the file is cut short"});
  EXPECT_LT(peak_memory() - before, int64_t{64} << 20);
}

}  // namespace
}  // namespace gradus
