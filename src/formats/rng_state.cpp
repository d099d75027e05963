#include <gradus/core/error.h>
#include <gradus/formats/rng_state.h>
#include <gradus/formats/torch_file.h>

#include <array>

namespace gradus {
namespace {

constexpr size_t kWords = 624;
using Words = std::array<uint32_t, kWords>;

/// The first state of a Mersenne twister for a 32-bit seed.
Words seeded_words(uint32_t seed) {
  Words words;
  words[0] = seed;
  for (uint32_t i = 1; i < kWords; ++i)
    words[i] = 1812433253u * (words[i - 1] ^ (words[i - 1] >> 30)) + i;
  return words;
}

/// The same for a seed of several words, as Python's `random` does for every integer.
Words seeded_words(const std::vector<uint32_t>& key) {
  auto words = seeded_words(19650218u);
  size_t i = 1;
  const auto next = [&] {
    if (++i < kWords) return;
    words[0] = words[kWords - 1];
    i = 1;
  };
  size_t j = 0;
  for (size_t k = std::max(kWords, key.size()); k > 0; --k) {
    words[i] =
        (words[i] ^ ((words[i - 1] ^ (words[i - 1] >> 30)) * 1664525u)) + key[j] + uint32_t(j);
    next();
    if (++j >= key.size()) j = 0;
  }
  for (size_t k = kWords - 1; k > 0; --k) {
    words[i] = (words[i] ^ ((words[i - 1] ^ (words[i - 1] >> 30)) * 1566083941u)) - uint32_t(i);
    next();
  }
  words[0] = 0x80000000u;
  return words;
}

std::vector<StateTree> as_items(const Words& words) {
  std::vector<StateTree> items;
  for (const auto word : words) items.emplace_back(int64_t{word});
  return items;
}

[[noreturn]] void malformed(const std::string& what) {
  throw Error("G-RNG-1", ErrorKind::checkpoint, "a random number state cannot be used: " + what,
              "rng_state.pth was written by another program, or is damaged. Remove it to continue "
              "with fresh random numbers.");
}

const StateTree& entry(const StateTree& tree, const char* name, const std::string& file) {
  if (!tree.is_dict()) malformed(file + " holds a " + tree.type_name() + ", expected a dict");
  const auto* found = tree.find(name);
  if (found == nullptr) malformed(file + " has no entry '" + name + "'");
  return *found;
}

const torch::Tensor& byte_tensor(const StateTree& tree, const char* name) {
  if (!tree.is_tensor() || tree.as_tensor().scalar_type() != at::kByte ||
      tree.as_tensor().dim() != 1)
    malformed(std::string("'") + name + "' is not a vector of bytes");
  return tree.as_tensor();
}

bool are_words(const std::vector<StateTree>& items, size_t begin, size_t end) {
  return std::all_of(items.begin() + std::ptrdiff_t(begin), items.begin() + std::ptrdiff_t(end),
                     [](const StateTree& item) {
                       return item.is_int() && item.as_int() >= 0 && item.as_int() <= 0xFFFFFFFFll;
                     });
}

/// `random.getstate()`: (3, 624 words and the position, None or the next Gauss number).
void check_python(const StateTree& state) {
  const bool outer = state.is_tuple() && state.items().size() == 3 && state.items()[0].is_int() &&
                     state.items()[1].is_tuple();
  const auto* words = outer ? &state.items()[1].items() : nullptr;
  if (words == nullptr || words->size() != kWords + 1 || !are_words(*words, 0, kWords + 1) ||
      words->back().as_int() > int64_t(kWords))
    malformed("'python' is not what random.getstate() returns");
}

/// numpy's state with its words as a plain list, which numpy takes as well as its own array.
StateTree plain_numpy(const StateTree& state) {
  const auto fail = [] { malformed("'numpy' is not what np.random.get_state() returns"); };
  if (!state.is_tuple() || state.items().size() != 5 || !state.items()[0].is_string() ||
      state.items()[0].as_string() != "MT19937")
    fail();
  StateTree::Tuple result{state.items()};
  auto& words = result.items[1];
  if (words.is_tensor()) {
    const auto array = words.as_tensor();  // held: words is about to be replaced
    if (array.scalar_type() != at::kUInt32 || array.dim() != 1 || !array.is_contiguous()) fail();
    const auto* numbers = static_cast<const uint32_t*>(array.const_data_ptr());
    words = StateTree::List{std::vector<StateTree>()};
    for (int64_t i = 0; i < array.numel(); ++i) words.push(int64_t{numbers[i]});
  }
  if (!words.is_list() || words.items().size() != kWords || !are_words(words.items(), 0, kWords))
    fail();
  if (!result.items[2].is_int() || result.items[2].as_int() < 0 ||
      result.items[2].as_int() > int64_t(kWords))
    fail();
  if (!result.items[3].is_int() || !(result.items[4].is_double() || result.items[4].is_int()))
    fail();
  return result;
}

}  // namespace

StateTree python_random_state(uint64_t seed) {
  std::vector<uint32_t> key = {uint32_t(seed)};
  if (seed >> 32 != 0) key.push_back(uint32_t(seed >> 32));
  auto words = as_items(seeded_words(key));
  words.push_back(int64_t{kWords});
  return StateTree::Tuple{{3, StateTree::Tuple{std::move(words)}, StateTree()}};
}

StateTree numpy_random_state(uint64_t seed) {
  return StateTree::Tuple{{"MT19937", StateTree::List{as_items(seeded_words(uint32_t(seed)))},
                           int64_t{kWords}, 0, 0.0}};
}

StateTree rng_state_tree(const RngState& state) {
  check_python(state.python);
  if (!state.cpu.defined()) malformed("'cpu' is not set");
  auto tree = StateTree::dict();
  tree.set("python", state.python);
  tree.set("numpy", plain_numpy(state.numpy));
  tree.set("cpu", byte_tensor(state.cpu, "cpu"));
  if (state.cuda.size() == 1 && !state.cuda_as_list) {
    tree.set("cuda", byte_tensor(state.cuda[0], "cuda"));
  } else if (!state.cuda.empty()) {
    auto list = StateTree::list();
    for (const auto& one : state.cuda) list.push(byte_tensor(one, "cuda"));
    tree.set("cuda", std::move(list));
  }
  return tree;
}

RngState rng_state_of(const StateTree& tree, const std::string& where) {
  RngState state;
  state.cpu = byte_tensor(entry(tree, "cpu", where), "cpu").clone();
  state.python = entry(tree, "python", where);
  check_python(state.python);
  state.numpy = plain_numpy(entry(tree, "numpy", where));
  if (const auto* cuda = tree.find("cuda")) {
    state.cuda_as_list = cuda->is_list() || cuda->is_tuple();
    if (state.cuda_as_list)
      for (const auto& one : cuda->items()) state.cuda.push_back(byte_tensor(one, "cuda").clone());
    else
      state.cuda.push_back(byte_tensor(*cuda, "cuda").clone());
  }
  return state;
}

RngState read_rng_state(const std::filesystem::path& file) {
  return rng_state_of(read_torch_file(file), file.string());
}

WrittenFile write_rng_state(const std::filesystem::path& file, const RngState& state, Sync sync) {
  return write_torch_file(file, rng_state_tree(state), sync);
}

}  // namespace gradus
