#include "config/other_names.h"

#include <gtest/gtest.h>

#include "config/config_file.h"

namespace sluice::config {
namespace {

TEST(OtherNames, AreAnsweredInAnySpelling) {
  EXPECT_EQ(key_of_other_name("learning_rate"), "optimizer.lr");
  EXPECT_EQ(key_of_other_name("Learning-Rate"), "optimizer.lr");
  EXPECT_EQ(key_of_other_name("rollout_n"), "rl.num_generations");
  EXPECT_EQ(key_of_other_name("é"), "");
}

TEST(OtherNames, LeadToKeysThatThereAre) {
  const std::string all = described(RunConfig());
  for (const char* name :
       {"learning_rate", "max_steps", "num_train_epochs", "save_steps", "max_grad_norm", "output_dir",
        "lora_r", "gradient_checkpointing", "early_stopping_patience", "load_best_model_at_end"}) {
    const std::string key(key_of_other_name(name));
    EXPECT_NE(all.find("\n" + key.substr(key.find('.') + 1) + " ="), std::string::npos)
        << name << " -> " << key;
  }
}

}  // namespace
}  // namespace sluice::config
