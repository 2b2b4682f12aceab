#include "corpus/batch_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "corpus/temporary_directory.h"

namespace sluice::corpus {
namespace {

using ::testing::HasSubstr;

// Documents of 10, 20 and 30 tokens; a context of 16.
class Lists : public testing::Test {
 protected:
  Lists() {
    IndexedWriter writer(directory_ / "corpus", {});
    for (const size_t length : {10, 20, 30}) writer.add(std::vector<int32_t>(length, 1));
    writer.commit();
  }

  std::shared_ptr<const BatchList> list(const std::string& lines) const {
    base::write_file_atomically(directory_ / "batches.jsonl", lines);
    const Blend blend = Blend::open({{(directory_ / "corpus").string(), 1.0}});
    return std::make_shared<const BatchList>(read_batch_list(directory_ / "batches.jsonl", blend, 16));
  }
  std::string fault(const std::string& lines) const {
    try {
      list(lines);
      return "";
    } catch (const base::InputError& error) {
      return error.what();
    }
  }

  TemporaryDirectory directory_;
};

TEST_F(Lists, NumbersAreDocumentsAndTriplesPartsOfThem) {
  ListedBatches batches(list("{\"documents\": [2, [1, 4, 16]]}\n\n{\"documents\": [0]}\n"), 5);
  EXPECT_EQ(batches.next(), (Batch{5, {{2, 0, 16}, {1, 4, 16}}, 32}));
  EXPECT_EQ(batches.next(), (Batch{6, {{0, 0, 10}}, 10}));
  try {
    batches.next();
    FAIL();
  } catch (const base::InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("lists 2 steps from step 5 on, but step 7 is needed"));
  }
}

TEST_F(Lists, RestoringIsGoingOnAndOtherListsAreRefused) {
  const std::string lines = "{\"documents\": [0]}\n{\"documents\": [1]}\n{\"documents\": [2]}\n";
  ListedBatches whole(list(lines), 0);
  whole.skip(2);
  ListedBatches resumed(list(lines), 0);
  resumed.restore(sampler_state_from_json(to_json(whole.state()), "state"));
  EXPECT_EQ(resumed.next(), whole.next());
  ListedBatches other(list(lines + "{\"documents\": [0]}\n"), 0);
  EXPECT_THROW(other.restore(whole.state()), base::InputError);
}

TEST_F(Lists, FaultsNameLineValueAndWayOut) {
  EXPECT_THAT(fault("{\"documents\": [0]}\n{\"documents\": [3]}"),
              HasSubstr("batches.jsonl:2: there is no document 3: the corpora have 3, numbered from 0"));
  EXPECT_THAT(fault("{\"documents\": [[0, 4, 7]]}"),
              HasSubstr("[0,4,7] of a document of 10 tokens is no sequence: give 2 tokens to"));
  EXPECT_THAT(fault("{\"documents\": [[2, 0, 17]]}"), HasSubstr("data.context_length, 16"));
  EXPECT_THAT(fault("{\"documents\": [[2, 9223372036854775807, 2]]}"), HasSubstr("inside the document"));
  EXPECT_THAT(fault("{\"documents\": [\"a\"]}"),
              HasSubstr("\"a\" is no sequence: give numbers of documents"));
  EXPECT_THAT(fault("{\"documents\": []}"), HasSubstr("documents is []: give numbers"));
  EXPECT_THAT(fault("{\"step\": 1}"), HasSubstr("key 'documents' is missing"));
  EXPECT_THAT(fault("\n"), HasSubstr("lists no step"));
}

}  // namespace
}  // namespace sluice::corpus
