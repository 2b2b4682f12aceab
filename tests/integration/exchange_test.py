"""Lanes that share sequences train alike over Gloo, whatever they exchange, and like one rank."""


from harness import TestCase, losses, main, records, write_corpus

RANKS = 4
LENGTH = 800
# In FP64, where sums in another order differ by rounding alone; a document a step, so that all lanes share it.
RUN = {"train__dtype": "float64", "train__steps": 4, "data__context_length": LENGTH, "data__tokens_per_step": LENGTH,
       "parallel__strategies": ["<1,1,4>"], "model__heads": 8, "model__kv_heads": 4,
       "data__validation": ["corpus"], "train__eval_every": 2}
# Nodes of two ranks: runs of two lanes can be nested.
NODES = {"parallel__gpus_per_node": 2}


class Exchanges(TestCase):
    def setUp(self):
        super().setUp()
        write_corpus(self.directory / "corpus", [[(3 * i + 5 * j) % 64 for i in range(LENGTH)] for j in range(6)])

    def trained(self, name, ranks=RANKS, **changes):
        """The losses, those of evaluations too, and the bytes that lanes sent each other."""
        run = self.config(name, **{**RUN, **changes})
        self.train(name, ranks)
        found = losses(run)
        evaluated = [record["validation_loss"] for record in records(run) if "validation_loss" in record]
        self.assertTrue(evaluated)
        found |= {f"evaluation {i}": (loss, 0) for i, loss in enumerate(evaluated)}
        return found, sum(record["cp_ep_bytes"] for record in records(run) if "loss" in record)

    def check(self, found, expected):
        self.assertEqual(found.keys(), expected.keys())
        for step, (loss, norm) in expected.items():
            self.assertAlmostEqual(found[step][0], loss, delta=1e-11 * loss)
            self.assertAlmostEqual(found[step][1], norm, delta=1e-10 * norm)

    def test_every_exchange_trains_as_one_rank(self):
        alone, _ = self.trained("alone", 1, parallel__strategies=["<1,1,1>"])
        sent = {}
        for exchange in ("ring", "heads", "nested", "balanced", "queries", "auto"):
            with self.subTest(exchange=exchange):
                found, sent[exchange] = self.trained(exchange, parallel__exchange=exchange, **NODES)
                self.check(found, alone)
                self.assertGreater(sent[exchange], 0)
        named = [sent[exchange] for exchange in ("ring", "heads", "nested", "balanced", "queries")]
        self.assertEqual(len(set(named)), len(named), sent)

    def test_recomputing_and_offloading(self):
        kept, _ = self.trained("kept", parallel__exchange="heads", memory__recompute="none", memory__offload=0.0)
        for name, changes in {"recomputed": {"memory__recompute": "full", "memory__offload": 0.0},
                              "offloaded": {"memory__recompute": "none", "memory__offload": 0.5}}.items():
            with self.subTest(policy=name):
                self.check(self.trained(name, parallel__exchange="heads", **changes)[0], kept)


if __name__ == "__main__":
    main()
