#include "formats/pickle_writer.h"

#include <gradus/core/error.h>

#include <fmt/format.h>

#include <bit>
#include <limits>

#include "formats/torch_dtype.h"

namespace gradus {
namespace {

constexpr int kDeepestWritten = 100;  // what the reader takes
constexpr size_t kMaxMemoText = 64;   // longer text is hardly ever repeated

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int more = lead < 0x80         ? 0
                     : (lead >> 5) == 6  ? 1
                     : (lead >> 4) == 14 ? 2
                     : (lead >> 3) == 30 ? 3
                                         : -1;
    if (more < 0 || i + size_t(more) >= text.size()) return false;
    uint32_t point = more == 0 ? lead : lead & (0x3Fu >> more);
    for (int k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + size_t(k)]);
      if ((next & 0xC0) != 0x80) return false;
      point = (point << 6) | (next & 0x3Fu);
    }
    constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (point < kLeast[more] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000))
      return false;
    i += size_t(more) + 1;
  }
  return true;
}

/// Bytes as text of characters up to U+00FF.
std::string to_latin1_text(std::string_view data) {
  std::string text;
  for (const char c : data) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      text += c;
    } else {
      text += char(0xC0 | (byte >> 6));
      text += char(0x80 | (byte & 0x3F));
    }
  }
  return text;
}

}  // namespace

void PickleWriter::fail(const std::string& what) const {
  throw Error("G-PT-6", ErrorKind::checkpoint, "cannot write " + file_ + ": " + what,
              "torch files hold plain values and dense tensors.");
}

std::string PickleWriter::write(const StateTree& tree) {
  out_ = "\x80\x02";
  value(tree, 0);
  code('.');
  return std::move(out_);
}

void PickleWriter::number(uint64_t value, int count) {
  for (int i = 0; i < count; ++i) out_ += char(value >> (8 * i));
}

bool PickleWriter::recall(const std::string& name) {
  const auto found = memo_.find(name);
  if (found == memo_.end()) return false;
  code(found->second < 256 ? 'h' : 'j');
  number(found->second, found->second < 256 ? 1 : 4);
  return true;
}

void PickleWriter::remember(const std::string& name) {
  const auto key = uint32_t(memo_.size());
  memo_.emplace(name, key);
  code(key < 256 ? 'q' : 'r');
  number(key, key < 256 ? 1 : 4);
}

void PickleWriter::value(const StateTree& tree, int depth) {
  if (depth > kDeepestWritten)
    fail(fmt::format("its values are nested more than {} deep", kDeepestWritten));
  if (tree.is_none()) return code('N');
  if (tree.is_bool()) return code(tree.as_bool() ? '\x88' : '\x89');
  if (tree.is_int()) return integer(tree.as_int());
  if (tree.is_double()) return real(tree.as_double());
  if (tree.is_string()) return text(tree.as_string());
  if (tree.is_bytes()) return bytes(tree.as_string());
  if (tree.is_tensor()) return tensor(tree.as_tensor());
  if (tree.is_dict()) return dict(tree, depth);
  if (tree.is_list()) {
    code(']');
    if (tree.items().empty()) return;
    code('(');
    sequence(tree.items(), depth);
    return code('e');
  }
  if (tree.items().empty()) return code(')');
  const auto count = tree.items().size();
  if (count > 3) code('(');
  sequence(tree.items(), depth);
  code(count > 3 ? 't' : char(0x84 + count));
}

void PickleWriter::sequence(const std::vector<StateTree>& items, int depth) {
  for (const auto& item : items) value(item, depth + 1);
}

void PickleWriter::dict(const StateTree& tree, int depth) {
  code('}');
  if (tree.entries().empty()) return;
  code('(');
  for (const auto& [key, item] : tree.entries()) {
    if (const auto* index = std::get_if<int64_t>(&key))
      integer(*index);
    else
      text(std::get<std::string>(key));
    value(item, depth + 1);
  }
  code('u');
}

void PickleWriter::integer(int64_t value) {
  if (value >= 0 && value < 0x100) {
    code('K');
    number(uint64_t(value), 1);
  } else if (value >= 0 && value < 0x10000) {
    code('M');
    number(uint64_t(value), 2);
  } else if (value >= std::numeric_limits<int32_t>::min() &&
             value <= std::numeric_limits<int32_t>::max()) {
    code('J');
    number(uint64_t(value), 4);
  } else {
    code('\x8a');
    number(8, 1);
    number(uint64_t(value), 8);
  }
}

void PickleWriter::real(double value) {
  const auto bits = std::bit_cast<uint64_t>(value);
  code('G');
  for (int shift = 56; shift >= 0; shift -= 8) out_ += char(bits >> shift);
}

void PickleWriter::text(std::string_view text) {
  const auto name = "s" + std::string(text.substr(0, kMaxMemoText));
  const bool short_text = text.size() <= kMaxMemoText;
  if (short_text && recall(name)) return;
  if (text.size() > std::numeric_limits<uint32_t>::max()) fail("a text of more than 4 GB");
  if (!is_utf8(text)) fail("a text that is not UTF-8");
  code('X');
  number(text.size(), 4);
  out_ += text;
  if (short_text) remember(name);
}

void PickleWriter::bytes(std::string_view data) {
  global("_codecs\nencode\n");
  text(to_latin1_text(data));
  text("latin1");
  out_ += "\x86R";  // TUPLE2, REDUCE
}

void PickleWriter::global(std::string_view name) {
  const auto key = "c" + std::string(name);
  if (recall(key)) return;
  code('c');
  out_ += name;
  remember(key);
}

void PickleWriter::empty_ordered_dict() {
  global("collections\nOrderedDict\n");
  out_ += ")R";  // EMPTY_TUPLE, REDUCE
}

void PickleWriter::sizes(at::IntArrayRef numbers) {
  if (numbers.empty()) return code(')');
  if (numbers.size() > 3) code('(');
  for (const auto value : numbers) integer(value);
  code(numbers.size() > 3 ? 't' : char(0x84 + numbers.size()));
}

size_t PickleWriter::storage_key(const torch::Tensor& tensor) {
  const auto key = std::pair(static_cast<const void*>(tensor.storage().unsafeGetStorageImpl()),
                             tensor.scalar_type());
  const auto [found, fresh] = keys_.try_emplace(key, storages_.size());
  if (fresh) storages_.push_back(tensor.storage());
  return found->second;
}

void PickleWriter::tensor(const torch::Tensor& given) {
  if (!given.defined()) return code('N');
  if (given.layout() != at::kStrided || given.is_meta() || !given.has_storage())
    fail("a tensor that is sparse or has no data");
  const auto* dtype = torch_dtype(given.scalar_type());
  if (dtype == nullptr)
    fail(std::string("a tensor of dtype ") + c10::toString(given.scalar_type()));
  const auto tensor = given.detach().resolve_conj().resolve_neg();
  const bool typed = !dtype->storage.empty();
  const auto key = storage_key(tensor);
  const auto bytes = tensor.storage().nbytes();

  global(typed ? "torch._utils\n_rebuild_tensor_v2\n" : "torch._utils\n_rebuild_tensor_v3\n");
  out_ += "((";
  text("storage");
  global(typed ? fmt::format("torch\n{}\n", dtype->storage) : "torch.storage\nUntypedStorage\n");
  text(std::to_string(key));
  text("cpu");
  integer(int64_t(typed ? bytes / tensor.element_size() : bytes));
  out_ += "tQ";  // TUPLE, BINPERSID
  integer(tensor.storage_offset());
  sizes(tensor.sizes());
  sizes(tensor.strides());
  code('\x89');  // requires_grad
  empty_ordered_dict();
  if (!typed) global(fmt::format("torch\n{}\n", dtype->name));
  out_ += "tR";  // TUPLE, REDUCE
}

}  // namespace gradus
