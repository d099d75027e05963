#include <gradus/core/error.h>
#include <gradus/formats/torch_file.h>

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "core/limit_factor.h"
#include "core/mapped_reads.h"
#include "formats/byte_readers.h"
#include "formats/legacy_torch_file.h"
#include "formats/output_file.h"
#include "formats/pickle_reader.h"
#include "formats/pickle_writer.h"
#include "formats/zip.h"

namespace gradus {
namespace {

constexpr size_t kMaxPickle = size_t{128} << 20;  // plain values only: tensors lie beside it
constexpr size_t kStorageAlignment = 16;          // of the widest element

[[noreturn]] void fail(const MappedFile& file, const std::string& what) {
  throw Error("G-PT-1", ErrorKind::checkpoint, "cannot read " + file.path().string() + ": " + what,
              "The file is damaged or was not written by torch.save. Fetch or save it again.");
}

/// The bytes of an entry, compared with its checksum. PyTorch writes none after
/// `set_crc32_options(False)`.
std::string_view content(const MappedFile& file, const ZipEntry& entry, const std::string& name) {
  const char* data = file.data() + entry.offset;
  if (entry.checksum != 0 && checksum_of(data, entry.size) != entry.checksum)
    fail(file, "the checksum of " + name + " does not match");
  return {data, entry.size};
}

WrittenFile write_tree(const ByteSink& sink, const StateTree& tree, const std::string& name) {
  PickleWriter pickle(name);
  const auto bytes = pickle.write(tree);
  ChecksummedSink checked(sink);
  ZipWriter zip(checked, "archive");
  zip.add("data.pkl", bytes);
  zip.add("byteorder", "little");
  size_t key = 0;
  for (const auto& storage : pickle.storages()) {
    const auto size = int64_t(storage.nbytes());
    const auto options = at::TensorOptions().dtype(at::kByte).device(storage.device());
    const auto plain = at::empty({0}, options).set_(storage, 0, {size}, {1}).cpu();
    zip.add("data/" + std::to_string(key++), plain.const_data_ptr(), size_t(size));
  }
  zip.add("version", "3\n");
  zip.finish();
  return checked.written();
}

}  // namespace

StateTree read_torch_file(const std::shared_ptr<MappedFile>& file) {
  if (is_legacy_torch_file(*file)) return read_legacy_torch_file(file);
  const ZipDirectory zip(*file);
  const auto* pickle = zip.find("data.pkl");
  if (pickle == nullptr) fail(*file, "the archive has no data.pkl");
  if (pickle->size > kMaxPickle * limit_factor())
    fail(*file, fmt::format("data.pkl has {} bytes, at most {} are read; GRADUS_LIMIT_FACTOR=8 in "
                            "the environment raises this limit eightfold",
                            pickle->size, kMaxPickle * limit_factor()));
  if (const auto* order = zip.find("byteorder");
      order != nullptr && content(*file, *order, "byteorder") != "little")
    fail(*file, "it was written on a machine of another byte order");
  return read_pickle(content(*file, *pickle, "data.pkl"), file->path().string(),
                     [&](const std::string& key, int64_t, c10::ScalarType) {
                       const auto* entry = zip.find("data/" + key);
                       if (entry == nullptr)
                         fail(*file, "storage '" + key.substr(0, 80) + "' is missing");
                       content(*file, *entry, "storage '" + key.substr(0, 80) + "'");
                       return storage_over(file, entry->offset, entry->size, kStorageAlignment);
                     });
}

StateTree read_torch_file(const std::filesystem::path& file) {
  return read_mapped([&] { return read_torch_file(map_for_tensors(file)); });
}

WrittenFile write_torch_file(const ByteSink& sink, const StateTree& tree) {
  return write_tree(sink, tree, "a torch file");
}

WrittenFile write_torch_file(const std::filesystem::path& file, const StateTree& tree, Sync sync) {
  OutputFile output(file);
  const auto written = write_tree([&](const void* data, size_t size) { output.write(data, size); },
                                  tree, file.string());
  output.close(sync);
  return written;
}

}  // namespace gradus
