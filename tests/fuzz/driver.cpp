// A plain main for the fuzz targets where the compiler has no libFuzzer: damages the files of a
// corpus for a while.
//
//   fuzz_NAME [--seconds N] [--seed S] [--save FILE] CORPUS...
//
// A corpus is a file or a folder. Input that crashes or hangs (10 s) is saved (default:
// crash-NAME).
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/fuzz_target.h"
#include "fuzz/mutator.h"

/// Refusing 10 GB that a header claims is right, dying of it is not, and neither is taking 2 GB;
/// leaks are what the unit tests look for.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "allocator_may_return_null=1:detect_leaks=0:hard_rss_limit_mb=2048:quarantine_size_mb=64";
}
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

std::string current;
std::string save_as;
constexpr unsigned kHangSeconds = 10;

/// Only what a signal handler may do.
void save_current() {
  const int fd = ::open(save_as.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd < 0) return;
  if (::write(fd, current.data(), current.size()) >= 0) ::close(fd);
}

void on_signal(int signal) {
  save_current();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void add_file(const std::filesystem::path& file, std::vector<std::string>& corpus) {
  std::ifstream in(file, std::ios::binary);
  corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

std::vector<std::string> read_corpus(const std::vector<std::filesystem::path>& places) {
  std::vector<std::string> corpus;
  for (const auto& place : places) {
    if (!std::filesystem::is_directory(place)) {
      add_file(place, corpus);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(place))
      if (entry.is_regular_file()) add_file(entry.path(), corpus);
  }
  return corpus;
}

void run(const std::string& input) {
  current = input;
  ::alarm(kHangSeconds);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 10;
  uint64_t seed = 1;
  const auto name = std::filesystem::path(argv[0]).filename().string();
  save_as = "crash-" + name;
  std::vector<std::filesystem::path> places;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--seconds" && i + 1 < argc)
      seconds = std::stod(argv[++i]);
    else if (argument == "--seed" && i + 1 < argc)
      seed = std::stoull(argv[++i]);
    else if (argument == "--save" && i + 1 < argc)
      save_as = argv[++i];
    else
      places.emplace_back(argument);
  }
  const auto corpus = read_corpus(places);
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: no corpus; name files or folders\n", name.c_str());
    return 2;
  }
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGALRM})
    ::signal(signal, on_signal);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(save_current);

  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  gradus::fuzz::Mutator mutator(seed);
  uint64_t runs = 0;
  for (const auto& input : corpus) run(input);
  for (; Clock::now() < end; ++runs) run(mutator.next(corpus));
  std::printf("%s: %llu inputs from %zu files in %.0f s, no crash\n", name.c_str(),
              static_cast<unsigned long long>(runs), corpus.size(), seconds);
  return 0;
}
