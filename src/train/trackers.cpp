#include "train/trackers.h"

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"

namespace sluice::train {

using base::text;

Trackers::Trackers(const config::LogConfig& log, corpus::PythonTools tools) {
  tools.usual.insert(tools.usual.begin(), "python3");  // the user's own has such packages
  for (const auto& [kind, target] : {std::pair{"wandb", log.wandb}, {"mlflow", log.mlflow}}) {
    if (target.empty()) continue;
    const std::string key = text("log.", kind);
    base::log_info(text(key, ": metrics are copied to ", kind, "'s ", target));
    trackers_.push_back(
        {key, std::make_unique<corpus::PythonChild>(
                  tools, "track_run.py", std::vector<std::string>{kind, log.dir.string(), target}, key)});
  }
}

void Trackers::close() {
  constexpr double kPatience_s = 60;
  for (Tracker& tracker : trackers_) {
    try {
      tracker.child->set_patience(kPatience_s);
      tracker.child->send_number<char>('E');
      tracker.child->check_status();
    } catch (const base::Error& error) {
      base::log_warning(text("not all metrics are at ", tracker.key, ": ", error.what()));
    }
  }
  trackers_.clear();
}

}  // namespace sluice::train
