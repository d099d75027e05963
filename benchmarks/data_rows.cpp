// Our side of data_rows.py; prints one JSON document.
//   bench_data_rows random PATH COUNT    microseconds per row read at random, best of three rounds
//   bench_data_rows checked PATH         seconds to read all rows of a newly opened file, each
//   batch of which is checked in full when it is first met, and seconds to read them again; the
//   best of seven rounds bench_data_rows stream PATH          rows, seconds and the peak of
//   resident memory while reading from front to back bench_data_rows resume PATH ROWS     seconds
//   to go on at a saved place after so many rows
#include <gradus/core/error.h>
#include <gradus/data/sources.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

nlohmann::json random_rows(const std::string& path, int64_t count) {
  const auto opened = Clock::now();
  const auto dataset = gradus::load_dataset(path);
  const double open_seconds = seconds_since(opened);
  std::mt19937_64 random(1);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < count; ++i)
    order.push_back(int64_t(random() % uint64_t(dataset->size())));
  double best = 1e9;
  size_t cells = 0;
  for (int round = 0; round < 3; ++round) {
    const auto begin = Clock::now();
    for (const auto i : order) cells += dataset->get(i).size();
    best = std::min(best, seconds_since(begin));
  }
  return {{"rows", dataset->size()},
          {"open_seconds", open_seconds},
          {"microseconds_per_row", best / double(count) * 1e6},
          {"cells", cells}};
}

// Has the system map all pages of the Arrow files that are open, so that the first pass over them
// does not pay for that.
void map_all_pages() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    if (line.ends_with(".arrow") && std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2)
      ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ);
  }
}

double read_all(const gradus::TableDataset& dataset) {
  const auto begin = Clock::now();
  size_t cells = 0;
  for (int64_t i = 0; i < dataset.size(); ++i) cells += dataset.get(i).size();
  return cells > 0 ? seconds_since(begin) : 0;
}

nlohmann::json checked_rows(const std::string& path) {
  double checked = 1e9, again = 1e9;
  for (int round = 0; round < 7; ++round) {
    const auto dataset = gradus::load_dataset(path);
    map_all_pages();
    checked = std::min(checked, read_all(*dataset));
    again = std::min(again, read_all(*dataset));
  }
  return {{"checked_seconds", checked}, {"again_seconds", again}};
}

// The most memory this program has held. (ru_maxrss would tell that of the program that started
// it.)
double peak_resident_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmHWM:") {
      double kib = 0;
      status >> kib;
      return kib / 1024;
    }
  return 0;
}

nlohmann::json stream_rows(const std::string& path) {
  const auto begin = Clock::now();
  const auto stream = gradus::stream_dataset(path);
  int64_t rows = 0;
  while (stream->next()) ++rows;
  return {{"rows", rows},
          {"seconds", seconds_since(begin)},
          {"peak_resident_mib", peak_resident_mib()}};
}

nlohmann::json resume_stream(const std::string& path, int64_t rows) {
  const auto before = gradus::stream_dataset(path);
  for (int64_t i = 0; i < rows; ++i) before->next();
  const auto state = before->save_state();
  const auto begin = Clock::now();
  const auto after = gradus::stream_dataset(path);
  after->load_state(state);
  after->next();
  return {{"seconds", seconds_since(begin)}};
}

}  // namespace

int main(int argc, char** argv) try {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "random" && argc == 4)
    std::cout << random_rows(argv[2], std::stoll(argv[3])) << '\n';
  else if (mode == "checked" && argc == 3)
    std::cout << checked_rows(argv[2]) << '\n';
  else if (mode == "stream" && argc == 3)
    std::cout << stream_rows(argv[2]) << '\n';
  else if (mode == "resume" && argc == 4)
    std::cout << resume_stream(argv[2], std::stoll(argv[3])) << '\n';
  else
    return 2;
  return 0;
} catch (const gradus::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
