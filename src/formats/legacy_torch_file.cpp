#include "formats/legacy_torch_file.h"

#include <gradus/core/error.h>

#include <fmt/format.h>

#include <cstring>
#include <map>

#include "core/limit_factor.h"
#include "formats/pickle_reader.h"

namespace gradus {
namespace {

constexpr std::string_view kMagic("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.",
                                  15);  // the pickle of torch's magic number
constexpr int64_t kProtocol = 1001;
constexpr size_t kMaxLegacyPickle = size_t{128} << 20;  // plain values only: tensors lie behind it
constexpr size_t kLegacyAlignment = 16;                 // of the widest element

/// The storages of one file: what the pickle claims of each, and where its bytes lie.
class LegacyStorages {
 public:
  explicit LegacyStorages(const MappedFile& file) : file_(file) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error("G-PT-1", ErrorKind::checkpoint,
                "cannot read " + file_.path().string() + ": " + what,
                "The file is damaged or was not written by torch.save. Fetch or save it again.");
  }

  /// A storage of that size without bytes: enough to see which there are.
  at::Storage claim(const std::string& key, int64_t elements, c10::ScalarType type) {
    uint64_t bytes = 0;
    if (elements < 0 ||
        __builtin_mul_overflow(uint64_t(elements), uint64_t(c10::elementSize(type)), &bytes) ||
        bytes > file_.size())
      fail(fmt::format("storage '{}' claims {} elements of {}, the file has {} bytes",
                       key.substr(0, 80), elements, c10::toString(type), file_.size()));
    places_[key] = {0, size_t(bytes), elements, false};
    return at::Storage(at::Storage::use_byte_size_t(), size_t(bytes),
                       at::DataPtr(nullptr, at::kCPU), /*allocator=*/nullptr, /*resizable=*/false);
  }

  /// Each storage is its number of elements, then its bytes, in the order of `keys`.
  void locate(const StateTree& keys, size_t position) {
    if (!keys.is_list()) fail("the list of its storages is missing");
    for (const auto& item : keys.items()) {
      const auto found = item.is_string() ? places_.find(item.as_string()) : places_.end();
      if (found == places_.end()) fail("its list names a storage that no tensor has");
      auto& place = found->second;
      int64_t elements = 0;
      if (place.is_known || file_.size() - position < sizeof elements)
        fail(fmt::format("storage '{}' is missing or comes twice", found->first.substr(0, 80)));
      std::memcpy(&elements, file_.data() + position, sizeof elements);
      position += sizeof elements;
      if (elements != place.elements || file_.size() - position < place.bytes)
        fail(fmt::format("storage '{}' has {} elements, expected {}, and {} bytes are left",
                         found->first.substr(0, 80), elements, place.elements,
                         file_.size() - position));
      place.offset = position;
      place.is_known = true;
      position += place.bytes;
    }
    for (const auto& [key, place] : places_)
      if (!place.is_known) fail("storage '" + key.substr(0, 80) + "' is missing");
  }

  at::Storage open(const std::shared_ptr<MappedFile>& file, const std::string& key) const {
    const auto& place = places_.at(key);
    return storage_over(file, place.offset, place.bytes, kLegacyAlignment);
  }

 private:
  struct Place {
    size_t offset = 0, bytes = 0;
    int64_t elements = 0;
    bool is_known = false;
  };
  const MappedFile& file_;
  std::map<std::string, Place> places_;
};

}  // namespace

bool is_legacy_torch_file(const MappedFile& file) {
  return std::string_view(file.data(), file.size()).starts_with(kMagic);
}

StateTree read_legacy_torch_file(const std::shared_ptr<MappedFile>& file) {
  LegacyStorages storages(*file);
  std::string_view rest(file->data(), file->size());
  rest.remove_prefix(kMagic.size());
  const auto next = [&](const StorageSource& source) {
    size_t used = 0;
    auto tree = read_pickle(rest.substr(0, kMaxLegacyPickle * limit_factor()),
                            file->path().string(), source, &used);
    rest.remove_prefix(used);
    return tree;
  };
  const StorageSource none = [&](const std::string&, int64_t, c10::ScalarType) -> at::Storage {
    storages.fail("a storage where only plain values belong");
  };
  const auto protocol = next(none);
  if (!protocol.is_int() || protocol.as_int() != kProtocol)
    storages.fail(fmt::format("its protocol is not {}", kProtocol));
  const auto system = next(none);
  const auto* order = system.is_dict() ? system.find(std::string("little_endian")) : nullptr;
  if (order == nullptr || !order->is_bool() || !order->as_bool())
    storages.fail("it was written on a machine of another byte order, or does not say on which");

  // The bytes follow the tensors that name them: one pass to learn which there are, a second with
  // the bytes in hand.
  const auto tensors = rest;
  next([&](const std::string& key, int64_t elements, c10::ScalarType type) {
    return storages.claim(key, elements, type);
  });
  const auto keys = next(none);
  storages.locate(keys, file->size() - rest.size());
  return read_pickle(
      tensors.substr(0, kMaxLegacyPickle * limit_factor()), file->path().string(),
      [&](const std::string& key, int64_t, c10::ScalarType) { return storages.open(file, key); });
}

}  // namespace gradus
