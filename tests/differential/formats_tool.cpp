// Reads a file with gradus and writes it again, for formats_test.py.
//
//   formats_tool copy IN OUT           by the ending: .safetensors, or a torch file
//   formats_tool rng IN OUT            rng_state.pth
//   formats_tool seed SEED OUT         a fresh rng_state.pth
//   formats_tool shard IN FOLDER SIZE  a safetensors file as a folder of shards of at most SIZE
//   ("5MB") formats_tool join FOLDER OUT       a folder of shards as one file formats_tool huge OUT
//   a torch file whose storage needs 64-bit sizes formats_tool time OUT MB           speed of
//   checksum, writing and reading
#include <gradus/core/error.h>
#include <gradus/formats/rng_state.h>
#include <gradus/formats/safetensors.h>
#include <gradus/formats/torch_file.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <cstdio>
#include <string>

using namespace gradus;
namespace fs = std::filesystem;

namespace {

void copy(const fs::path& in, const fs::path& out) {
  if (in.extension() == ".safetensors") {
    const auto file = read_safetensors(in);
    write_safetensors(out, file.tensors, file.metadata);
  } else {
    write_torch_file(out, read_torch_file(in));
  }
}

void seed(uint64_t seed, const fs::path& out) {
  auto generator = at::detail::createCPUGenerator(seed);
  write_rng_state(out, {.cpu = generator.get_state(),
                        .cuda = {},
                        .python = python_random_state(seed),
                        .numpy = numpy_random_state(seed)});
}

void huge(const fs::path& out) {
  auto tree = StateTree::dict();
  tree.set("huge", at::zeros({(int64_t{1} << 32) + 5},
                             at::kByte));  // pages that are never touched cost nothing
  tree.set("after", at::ones({3}));
  const auto written = write_torch_file(out, tree);
  if (!(file_checksum(out) == written)) throw std::runtime_error("checksum");
}

template <typename Work>
void timed(const char* what, double bytes, Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%-18s %.3f s  %.2f GB/s\n", what, took.count(), bytes / took.count() / 1e9);
}

void time(const fs::path& out, int64_t megabytes) {
  const auto tensor = at::ones({megabytes, 250'000});
  const auto bytes = double(tensor.nbytes());
  timed("checksum", bytes, [&] { checksum_of(tensor.const_data_ptr(), tensor.nbytes()); });
  timed("write safetensors", bytes, [&] { write_safetensors(out, {{"w", tensor}}); });
  timed("map safetensors", bytes, [&] { read_safetensors(out); });
  timed("write torch file", bytes, [&] { write_torch_file(out, tensor); });
  timed("map torch file", bytes, [&] { read_torch_file(out); });
  timed("file_checksum", bytes, [&] { file_checksum(out); });
  timed("write and sync", bytes, [&] { write_torch_file(out, tensor, Sync::yes); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 3 && words[0] == "copy")
      copy(words[1], words[2]);
    else if (words.size() == 3 && words[0] == "rng")
      write_rng_state(words[2], read_rng_state(words[1]));
    else if (words.size() == 3 && words[0] == "seed")
      seed(std::stoull(words[1]), words[2]);
    else if (words.size() == 4 && words[0] == "shard")
      write_safetensors_folder(words[2], read_safetensors(words[1]).tensors,
                               {.max_shard_size = parse_shard_size(words[3])});
    else if (words.size() == 3 && words[0] == "join")
      write_safetensors(words[2], read_safetensors_folder(words[1]));
    else if (words.size() == 2 && words[0] == "huge")
      huge(words[1]);
    else if (words.size() == 3 && words[0] == "time")
      time(words[1], std::stoll(words[2]));
    else
      return 2;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
