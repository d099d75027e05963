#pragma once

#include <ATen/Parallel.h>
#include <gradus/core/json.h>

#include <fstream>
#include <iostream>

#include "../silent_log.h"

namespace gradus::testing {

/// The whole of a program `NAME JOBS.json ANSWERS.json`: writes `answer` of every job of the first
/// file to the second, on one thread and without the library's messages. Returns the exit status.
inline int answer_jobs(int argc, char** argv, const std::string& name,
                       const std::function<nlohmann::json(const nlohmann::json& job)>& answer) try {
  if (argc != 3) {
    std::cerr << "usage: " << name << " JOBS.json ANSWERS.json\n";
    return 2;
  }
  at::set_num_threads(1);
  set_log_sink(std::make_shared<SilentLog>());
  auto answers = nlohmann::json::array();
  for (const auto& job : read_json(argv[1])) answers.push_back(answer(job));
  std::ofstream(argv[2]) << dump_json(answers, 1);
  return 0;
} catch (const std::exception& error) {
  std::cerr << name << ": " << error.what() << '\n';
  return 1;
}

}  // namespace gradus::testing
