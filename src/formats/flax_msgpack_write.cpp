#include <gradus/core/error.h>
#include <gradus/formats/flax_msgpack.h>

#include <bit>
#include <functional>

#include "formats/flax_dtype.h"
#include "formats/output_file.h"

namespace gradus {
namespace {

using Sink = std::function<void(const void*, size_t)>;

/// msgpack as Python's package writes it: the shortest form of every number and length, floats in 8
/// bytes.
class Writer {
 public:
  Writer(Sink sink, int64_t max_chunk_size)
      : sink_(std::move(sink)), max_chunk_size_(size_t(std::max<int64_t>(max_chunk_size, 1))) {}

  /// `may_chunk`: Flax looks for large arrays in dictionaries only, not in lists.
  void tree(const FlaxTree& tree, bool may_chunk = true) {
    std::visit([&](const auto& value) { write(value, may_chunk); }, tree.value());
  }

 private:
  void raw(const void* data, size_t size) { sink_(data, size); }

  void tagged(uint8_t tag, uint64_t number, int width) {
    char bytes[9] = {char(tag)};
    for (int i = 0; i < width; ++i) bytes[1 + i] = char(number >> (8 * (width - 1 - i)));
    raw(bytes, size_t(1 + width));
  }
  void byte(uint8_t value) { tagged(value, 0, 0); }

  /// A length in the first form that holds it: in `fixed` itself, or behind tags for 1, 2 and 4
  /// bytes (0: no such form).
  void length(uint64_t size, uint8_t fixed, uint64_t fixed_limit, uint8_t tag8, uint8_t tag16,
              uint8_t tag32) {
    if (size < fixed_limit)
      byte(uint8_t(fixed | size));
    else if (tag8 != 0 && size <= 0xFF)
      tagged(tag8, size, 1);
    else if (size <= 0xFFFF)
      tagged(tag16, size, 2);
    else
      tagged(tag32, size, 4);
  }
  void map_header(uint64_t size) { length(size, 0x80, 16, 0, 0xDE, 0xDF); }
  void list_header(uint64_t size) { length(size, 0x90, 16, 0, 0xDC, 0xDD); }
  void bytes_header(uint64_t size) { length(size, 0, 0, 0xC4, 0xC5, 0xC6); }

  void extension_header(FlaxExtension code, uint64_t size) {
    if (std::has_single_bit(size) && size <= 16)
      byte(uint8_t(0xD4 + std::countr_zero(size)));
    else
      length(size, 0, 0, 0xC7, 0xC8, 0xC9);
    byte(uint8_t(code));
  }

  void write(std::monostate, bool) { byte(0xC0); }
  void write(bool value, bool) { byte(value ? 0xC3 : 0xC2); }
  void write(uint64_t value, bool) {
    if (value < 0x80)
      byte(uint8_t(value));
    else if (value <= 0xFF)
      tagged(0xCC, value, 1);
    else if (value <= 0xFFFF)
      tagged(0xCD, value, 2);
    else if (value <= 0xFFFFFFFF)
      tagged(0xCE, value, 4);
    else
      tagged(0xCF, value, 8);
  }
  void write(int64_t value, bool) {
    if (value >= 0)
      write(uint64_t(value), false);
    else if (value >= -32)
      byte(uint8_t(value));
    else if (value >= INT8_MIN)
      tagged(0xD0, uint64_t(value), 1);
    else if (value >= INT16_MIN)
      tagged(0xD1, uint64_t(value), 2);
    else if (value >= INT32_MIN)
      tagged(0xD2, uint64_t(value), 4);
    else
      tagged(0xD3, uint64_t(value), 8);
  }
  void write(double value, bool) { tagged(0xCB, std::bit_cast<uint64_t>(value), 8); }
  void write(std::complex<double> value, bool) {
    extension_header(FlaxExtension::complex, 19);
    list_header(2);
    write(value.real(), false);
    write(value.imag(), false);
  }
  void write(const std::string& text, bool) {
    length(text.size(), 0xA0, 32, 0xD9, 0xDA, 0xDB);
    raw(text.data(), text.size());
  }
  void write(const FlaxTree::Bytes& bytes, bool) {
    bytes_header(bytes.data.size());
    raw(bytes.data.data(), bytes.data.size());
  }
  void write(const FlaxTree::List& list, bool) {
    list_header(list.items.size());
    for (const auto& item : list.items) tree(item, false);
  }
  void write(const FlaxTree::Dict& dict, bool may_chunk) {
    map_header(dict.items.size());
    for (const auto& [key, value] : dict.items) {
      path_.push_back(&key);
      write(key, false);
      tree(value, may_chunk);
      path_.pop_back();
    }
  }
  void write(const FlaxTree::Scalar& scalar, bool) {
    array(checked(scalar.value), FlaxExtension::numpy_scalar);
  }
  void write(const torch::Tensor& tensor, bool may_chunk) {
    const auto ready = checked(tensor);
    if (may_chunk && ready.nbytes() > max_chunk_size_)
      chunked(ready);
    else
      array(ready, FlaxExtension::array);
  }

  /// Contiguous CPU memory.
  torch::Tensor checked(const torch::Tensor& tensor) const {
    if (!tensor.defined()) refuse("is undefined");
    if (tensor.layout() != at::kStrided || tensor.is_meta())
      refuse("is not a dense tensor with data");
    dtype_name(tensor);
    return tensor.detach().resolve_conj().resolve_neg().cpu().contiguous();
  }

  [[noreturn]] void refuse(const std::string& what) const {
    std::string path;
    for (const auto* key : path_) path += (path.empty() ? "" : "/") + *key;
    throw Error("G-FLAX-3", ErrorKind::model,
                "cannot write the array '" + path + "' for Flax: it " + what,
                "Flax's files hold dense arrays of numpy's and JAX's number types; convert it or "
                "leave it out.");
  }

  std::string dtype_name(const torch::Tensor& tensor) const {
    for (const auto& dtype : kFlaxDtypes)
      if (dtype.type == tensor.scalar_type()) return std::string(dtype.name);
    refuse(std::string("has dtype ") + c10::toString(tensor.scalar_type()));
  }

  void array(const torch::Tensor& tensor, FlaxExtension code) {
    std::string header;  // all but the data, to know the length of the whole
    Writer small(
        [&](const void* data, size_t size) { header.append(static_cast<const char*>(data), size); },
        1);
    small.list_header(3);
    small.list_header(uint64_t(tensor.dim()));
    for (const auto size : tensor.sizes()) small.write(int64_t{size}, false);
    small.write(dtype_name(tensor), false);
    small.bytes_header(tensor.nbytes());
    if (header.size() + tensor.nbytes() > 0xFFFFFFFF)
      refuse("has more bytes than a msgpack value can; lower max_chunk_size");
    extension_header(code, header.size() + tensor.nbytes());
    raw(header.data(), header.size());
    if (tensor.nbytes() > 0) raw(tensor.const_data_ptr(), tensor.nbytes());
  }

  void chunked(const torch::Tensor& tensor) {
    map_header(3);
    write(std::string(kFlaxChunked), false);
    write(true, false);
    write("shape", uint64_t(tensor.dim()), [&](int64_t i) { write(tensor.size(i), false); });
    const auto flat = tensor.view({-1});
    const auto piece = std::max<int64_t>(1, int64_t(max_chunk_size_ / tensor.element_size()));
    const auto count = (flat.numel() + piece - 1) / piece;
    write("chunks", uint64_t(count), [&](int64_t i) {
      array(flat.slice(0, i * piece, std::min((i + 1) * piece, flat.numel())),
            FlaxExtension::array);
    });
  }
  /// name: {"0": …, "1": …}
  void write(const std::string& name, uint64_t count,
             const std::function<void(int64_t)>& write_item) {
    write(name, false);
    map_header(count);
    for (uint64_t i = 0; i < count; ++i) {
      write(std::to_string(i), false);
      write_item(int64_t(i));
    }
  }

  Sink sink_;
  size_t max_chunk_size_;
  std::vector<const std::string*> path_;  // keys down to the value being written
};

}  // namespace

WrittenFile write_flax_msgpack(const std::filesystem::path& file, const FlaxTree& tree,
                               const FlaxOptions& options) {
  OutputFile out(file);
  ChecksummedSink sink([&](const void* data, size_t size) { out.write(data, size); });
  Writer([&](const void* data, size_t size) { sink.write(data, size); }, options.max_chunk_size)
      .tree(tree);
  out.close(options.sync);
  return sink.written();
}

std::string flax_msgpack_bytes(const FlaxTree& tree, const FlaxOptions& options) {
  std::string bytes;
  Writer([&](const void* data, size_t size) { bytes.append(static_cast<const char*>(data), size); },
         options.max_chunk_size)
      .tree(tree);
  return bytes;
}

}  // namespace gradus
