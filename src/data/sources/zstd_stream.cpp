#include "data/sources/zstd_stream.h"

#include "core/open_file.h"
#include "data/sources/source_errors.h"

#ifdef GRADUS_WITH_ARROW

#include <arrow/io/compressed.h>
#include <arrow/io/file.h>
#include <arrow/util/compression.h>

#include "data/sources/arrow_cell.h"

namespace gradus::sources {
namespace {

class ZstdStream : public ByteStream {
 public:
  explicit ZstdStream(const std::filesystem::path& path) : path_(path) { open(); }
  size_t read(char* to, size_t count) override {
    const auto n = size_t(take(stream_->Read(int64_t(count), to), path_));
    at_ += int64_t(n);
    return n;
  }
  void seek(int64_t offset) override {
    if (offset < at_) open();
    std::string dropped(size_t{1} << 20, '\0');
    while (at_ < offset)
      if (read(dropped.data(), std::min(dropped.size(), size_t(offset - at_))) == 0)
        throw damaged(path_, "the zstd data ends before the position to continue at");
  }

 private:
  void open() {
    at_ = 0;
    const int descriptor = open_for_reading(path_);
    const auto file = take(arrow::io::ReadableFile::Open(descriptor), path_);
    codec_ = take(arrow::util::Codec::Create(arrow::Compression::ZSTD), path_);
    stream_ = take(arrow::io::CompressedInputStream::Make(codec_.get(), file), path_);
  }

  std::filesystem::path path_;
  std::unique_ptr<arrow::util::Codec> codec_;
  std::shared_ptr<arrow::io::CompressedInputStream> stream_;
  int64_t at_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> open_zstd_stream(const std::filesystem::path& path) {
  return std::make_unique<ZstdStream>(path);
}

}  // namespace gradus::sources

#else

namespace gradus::sources {

std::unique_ptr<ByteStream> open_zstd_stream(const std::filesystem::path& path) {
  throw needs_arrow("reading " + path.string());
}

}  // namespace gradus::sources

#endif
