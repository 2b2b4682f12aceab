// Results of long studies: JSON lines, appended to a file. A result that stands there is not computed again.
#pragma once

#include <fstream>
#include <iostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "strategy/readable.h"

namespace sluice::bench {

class ResultLines {
 public:
  // The values of `key_names` in a line distinguish it from all others.
  ResultLines(std::string path, std::vector<std::string> key_names)
      : path_(std::move(path)), key_names_(std::move(key_names)) {
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) known_.insert(key_of(base::Json::parse(line)));
  }

  bool has(const base::Json& key) const { return known_.contains(key_of(key)); }
  void add(base::Json key, const base::Json& result) {
    key.update(result);
    const std::string line = strategy::readable_text(key.dump());  // pages quote schemes
    std::ofstream(path_, std::ios::app) << line << "\n";
    std::cout << line.substr(0, 220) << std::endl;
  }

 private:
  std::string key_of(const base::Json& line) const {
    std::string key;
    for (const std::string& name : key_names_) key += line.at(name).dump() + " ";
    return key;
  }

  std::string path_;
  std::vector<std::string> key_names_;
  std::set<std::string> known_;
};

}  // namespace sluice::bench
