"""Fields between two components on loopback."""

from __future__ import annotations

import threading
import time
import unittest

import numpy

import lfn.couple
from support import BOTH, CoupledTest, coupling, variable

LEVEL = numpy.arange(12.0).reshape(3, 4)


def exchange(channel: lfn.couple.Channel) -> None:
    """Runs all steps with zeros."""
    for step in channel:
        for name, it in channel.sent.items():
            step.put(name, numpy.zeros(it.shape, it.dtype))
        for name in channel.received:
            step.get(name)


class Fields(CoupledTest):
    def test_every_type_and_shape_arrives(self) -> None:
        types = ["float32", "float64", "int32", "int64"]
        grids = {"line": (5,), "surface": (3, 4), "volume": (2, 3, 4)}
        tables = [variable(f"{grid}_{dtype}", "lake", grid=grid, dtype=dtype) for grid in grids for dtype in types]

        def field(name: str, step: int) -> numpy.ndarray:
            grid, dtype = name.rsplit("_", 1)
            shape = grids[grid]
            return (numpy.arange(numpy.prod(shape)) * 1000 - 1500 + step).reshape(shape).astype(dtype)

        def lake(channel: lfn.couple.Channel) -> None:
            for step in channel:
                for name in channel.sent:
                    step.put(name, field(name, step.number))

        def atmosphere(channel: lfn.couple.Channel) -> int:
            compared = 0
            for step in channel:
                for name in channel.received:
                    got = step.get(name)
                    numpy.testing.assert_array_equal(got, field(name, step.number), strict=True)
                    self.assertEqual(step.step_of(name), step.number)
                    compared += 1
            return compared

        outcomes = self.couple(coupling(*tables, steps=4), lake, atmosphere)
        self.assert_finished(*outcomes)
        self.assertEqual(outcomes[1].value, 4 * 12)

    def test_lag_returns_initial_then_older_fields(self) -> None:
        text = coupling(variable("level", "lake", lag=2), steps=5)

        def lake(channel: lfn.couple.Channel) -> None:
            for step in channel:
                step.put("level", LEVEL + step.number)

        def atmosphere(channel: lfn.couple.Channel) -> list[tuple[float, int | None]]:
            return [(float(step.get("level")[0, 0]), step.step_of("level")) for step in channel]

        outcomes = self.couple(text, lake, atmosphere)
        self.assert_finished(*outcomes)
        self.assertEqual(outcomes[1].value, [(0.0, None), (0.0, None), (0.0, 0), (1.0, 1), (2.0, 2)])

    def test_model_may_change_its_array_after_put(self) -> None:
        def lake(channel: lfn.couple.Channel) -> None:
            array = LEVEL.copy()
            for step in channel:
                array[:] = LEVEL + step.number
                step.put("level", array)
                array[:] = -1

        def atmosphere(channel: lfn.couple.Channel) -> None:
            for step in channel:
                numpy.testing.assert_array_equal(step.get("level"), LEVEL + step.number)

        self.assert_finished(*self.couple(coupling(variable("level", "lake"), steps=20), lake, atmosphere))

    def test_views_that_are_not_contiguous_are_put(self) -> None:
        views = [numpy.repeat(LEVEL, 2, axis=1)[:, ::2], LEVEL.T.copy().T, LEVEL[::-1][::-1], LEVEL.tolist()]

        def lake(channel: lfn.couple.Channel) -> None:
            for step in channel:
                step.put("level", views[step.number])

        def atmosphere(channel: lfn.couple.Channel) -> None:
            for step in channel:
                numpy.testing.assert_array_equal(step.get("level"), LEVEL)

        self.assert_finished(*self.couple(coupling(variable("level", "lake"), steps=4), lake, atmosphere))

    def test_get_fills_the_given_array(self) -> None:
        def lake(channel: lfn.couple.Channel) -> None:
            for step in channel:
                step.put("level", LEVEL)

        def atmosphere(channel: lfn.couple.Channel) -> None:
            targets = [numpy.empty((3, 4)), numpy.empty((3, 8))[:, ::2]]
            read_only = numpy.empty((3, 4))
            read_only.flags.writeable = False
            wrong = [
                (numpy.empty((4, 3)), r"shape \(4, 3\)"),
                (read_only, "read-only"),
                (LEVEL.astype("f4"), "float32"),
                ([0.0] * 12, "expected a NumPy array, found list"),
            ]
            for step in channel:
                for out, expected in wrong:
                    with self.assertRaisesRegex(lfn.couple.FieldError, expected):
                        step.get("level", out=out)
                out = targets[step.number]
                self.assertIs(step.get("level", out=out), out)
                numpy.testing.assert_array_equal(out, LEVEL)

        self.assert_finished(*self.couple(coupling(variable("level", "lake"), steps=2), lake, atmosphere))

    def test_array_that_does_not_fit_names_both(self) -> None:
        cases = [
            (LEVEL.astype("f4"), "level: the array has dtype float32, the coupling file has float64"),
            (LEVEL.astype(">f8"), r"level: the array has dtype float64 \(big-endian\), the coupling file has float64"),
            (numpy.zeros((3, 4), int), "level: the array has dtype int64, the coupling file has float64"),
            (LEVEL.T, r"level: the array has shape \(4, 3\), the coupling file has \(3, 4\)"),
            (0.0, r"level: the array has shape \(\), the coupling file has \(3, 4\)"),
            (numpy.ma.masked_greater(LEVEL, 3), "level: the array has masked elements"),
            ([[1.0, 2.0], [3.0]], "level: not an array: "),
        ]

        def lake(channel: lfn.couple.Channel) -> None:
            for step in channel:
                for array, expected in cases:
                    with self.assertRaisesRegex(lfn.couple.FieldError, expected):
                        step.put("level", array)
                step.put("level", numpy.ma.masked_array(LEVEL))

        self.assert_finished(*self.couple(coupling(variable("level", "lake")), lake, exchange))

    def test_not_a_number_is_counted_at_both_ends(self) -> None:
        def lake(channel: lfn.couple.Channel) -> None:
            for step in channel:
                array = LEVEL.copy()
                array[0, : step.number] = numpy.nan
                step.put("level", array)

        def atmosphere(channel: lfn.couple.Channel) -> int:
            return sum(int(numpy.isnan(step.get("level")).sum()) for step in channel)

        outcomes = self.couple(coupling(variable("level", "lake")), lake, atmosphere)
        self.assert_finished(*outcomes)
        self.assertEqual(outcomes[1].value, 3)
        for outcome in outcomes:
            component = "own" if outcome is outcomes[0] else "partner"
            self.assertEqual(outcome.report["measured"][component]["sent"]["level"]["nan"], 3)
            self.assertTrue([event for event in outcome.events if event.kind == "not_a_number"])

    def test_viewer_gets_the_newest_field_without_a_wait(self) -> None:
        steps = 1000
        text = coupling(variable("level", "lake", drop="oldest"), steps=steps)

        def lake(channel: lfn.couple.Channel) -> None:
            for step in channel:
                step.put("level", LEVEL + step.number)

        def atmosphere(channel: lfn.couple.Channel) -> list[int]:
            seen = []
            for step in channel:
                got = step.get("level")
                if got is None:
                    self.assertIsNone(step.step_of("level"))
                else:
                    seen.append(step.step_of("level"))
                    numpy.testing.assert_array_equal(got, LEVEL + seen[-1])
                # The last field of the lake arrives: the steps before it give the lake 50 s.
                if seen[-1:] != [steps - 1]:
                    time.sleep(0.05)
            return seen

        lake_end, atmosphere_end = self.couple(text, lake, atmosphere)
        self.assert_finished(lake_end, atmosphere_end)
        seen = atmosphere_end.value
        self.assertEqual(seen[-1:], [steps - 1])
        self.assertEqual(seen, sorted(seen))
        fields = len(set(seen))
        measured = atmosphere_end.report["measured"]
        self.assertEqual(measured["own"]["received"]["level"]["fields"], fields)
        dropped = measured["own"]["received"]["level"]["dropped"] + measured["partner"]["sent"]["level"]["dropped"]
        self.assertEqual(dropped + fields, steps)
        result = atmosphere_end.events[-1].text
        self.assertIn(f"\ndropped: {dropped} of 1,000 fields of level\n", result)

    def test_report_has_the_figures_of_both(self) -> None:
        outcomes = self.couple(coupling(BOTH, steps=4), exchange, exchange)
        self.assert_finished(*outcomes)
        for outcome, own, partner in [(outcomes[0], "lake", "atmosphere"), (outcomes[1], "atmosphere", "lake")]:
            self.assertEqual(outcome.report["schema"], "lfn.couple.run/1")
            self.assertEqual(outcome.report["measured"]["own"]["component"], own)
            self.assertEqual(outcome.report["measured"]["partner"]["component"], partner)
            self.assertEqual(outcome.report["measured"]["own"]["steps"], 4)
            self.assertIn("connected", [event.kind for event in outcome.events])
            result = outcome.events[-1]
            self.assertEqual((result.kind, result.details), ("result", outcome.report))
            self.assertRegex(result.text, r"\nrun +\S+ \S+ +\S+ \S+\n")
            self.assertRegex(result.text, rf"\nstep of {own} +\S+ \S+ +\S+ \S+\n")
            for finding in outcome.report["findings"]:
                self.assertIn(f"\n{finding['name']}: {finding['summary']}\nhint: {finding['remedy']['command']}", result.text)
            # The file has a path of 539 ms, and the test has none.
            self.assertIn("path delay", [finding["name"] for finding in outcome.report["findings"]])


class Steps(CoupledTest):
    def test_wrong_use_of_a_step_is_named(self) -> None:
        def lake(channel: lfn.couple.Channel) -> None:
            steps = []
            for step in channel:
                steps.append(step)
                with self.assertRaisesRegex(lfn.couple.CoupleError, "wave"):
                    step.put("wave", LEVEL)
                with self.assertRaisesRegex(lfn.couple.CoupleError, "wave"):
                    step.get("wave")
                with self.assertRaisesRegex(lfn.couple.CoupleError, "level"):
                    step.get("level")
                with self.assertRaisesRegex(lfn.couple.CoupleError, r"step_of\('wind'\) before get\('wind'\) in step \d"):
                    step.step_of("wind")
                step.put("level", LEVEL)
                step.get("wind")
                self.assertEqual(step.step_of("wind"), step.number)
                with self.assertRaisesRegex(lfn.couple.CoupleError, f"level was put twice in step {step.number}"):
                    step.put("level", LEVEL)
                if step.number == 1:
                    with self.assertRaisesRegex(lfn.couple.CoupleError, "step 0 has ended; the channel is at step 1"):
                        steps[0].put("level", LEVEL)

        self.assert_finished(*self.couple(coupling(BOTH), lake, exchange))

    def test_second_get_in_a_step_is_named(self) -> None:
        def atmosphere(channel: lfn.couple.Channel) -> None:
            for step in channel:
                numpy.testing.assert_array_equal(step.get("level"), LEVEL)
                with self.assertRaisesRegex(lfn.couple.CoupleError, f"^level was got twice in step {step.number}$"):
                    step.get("level")

        def lake(channel: lfn.couple.Channel) -> None:
            for step in channel:
                step.put("level", LEVEL)

        self.assert_finished(*self.couple(coupling(variable("level", "lake")), lake, atmosphere))

    def test_forgotten_put_is_named_at_both_ends(self) -> None:
        def lake(channel: lfn.couple.Channel) -> None:
            for _ in channel:
                pass

        lake_end, atmosphere_end = self.couple(coupling(variable("level", "lake")), lake, exchange)
        self.assertRegex(str(lake_end.error), "step 0 ended without a put of level")
        self.assertIsInstance(atmosphere_end.error, lfn.couple.PartnerStopped)
        self.assertRegex(str(atmosphere_end.error), "step 0 ended without a put of level")

    def test_closed_channel_says_so(self) -> None:
        def lake(channel: lfn.couple.Channel) -> None:
            exchange(channel)
            report = channel.finish()
            self.assertIs(channel.finish(), report)
            with self.assertRaisesRegex(lfn.couple.CoupleError, "the channel has ended"):
                channel._channel.begin_step()

        self.assert_finished(*self.couple(coupling(BOTH), lake, exchange))


class Ends(CoupledTest):
    def test_exception_in_the_block_stops_the_partner(self) -> None:
        def lake(channel: lfn.couple.Channel) -> None:
            for step in channel:
                step.put("level", LEVEL)
                step.get("wind")
                if step.number == 1:
                    raise ArithmeticError("the lake is dry")

        lake_end, atmosphere_end = self.couple(coupling(BOTH, steps=5), lake, exchange)
        self.assertIsInstance(lake_end.error, ArithmeticError)
        self.assertIsInstance(atmosphere_end.error, lfn.couple.PartnerStopped)
        self.assertRegex(str(atmosphere_end.error), "lake stopped the run: ArithmeticError: the lake is dry")

    def test_files_that_differ_are_named_at_both_ends(self) -> None:
        text = coupling(BOTH)
        other = text.replace('units = "m"', 'units = "cm"').replace("[3, 4]", "[4, 3]")
        for outcome in self.couple(text, exchange, exchange, atmosphere_text=other):
            self.assertIsInstance(outcome.error, lfn.couple.FilesDiffer)
            keys = {key for key, _, _ in outcome.error.differences}
            self.assertEqual(keys, {"grid.surface.shape", "variable.level.units"})

    def test_wrong_token_is_named_at_both_ends(self) -> None:
        def change(ticket: str) -> str:
            return "lfn://" + "A" * 22 + ticket[ticket.index("@") :]

        ends = self.couple(coupling(BOTH), exchange, exchange, change_ticket=change, lake_options={"patience": 2.0})
        self.assertIsInstance(ends[0].error, lfn.couple.PartnerLost)
        self.assertIn("refused", [event.kind for event in ends[0].events])
        self.assertIsInstance(ends[1].error, lfn.couple.CoupleError)
        self.assertRegex(str(ends[1].error), "token")

    def test_wait_for_a_field_ends_after_the_patience(self) -> None:
        def lake(channel: lfn.couple.Channel) -> None:
            for step in channel:
                step.put("level", LEVEL)
                step.get("wind")

        def atmosphere(channel: lfn.couple.Channel) -> None:
            for step in channel:
                # The lake waits for the wind, and gives up.
                step.get("level")
                with self.assertRaises(lfn.couple.PartnerStopped) as raised:
                    step.get("wave")
                raise raised.exception

        text = coupling(BOTH, variable("wave", "lake"))
        lake_end, atmosphere_end = self.couple(text, lake, atmosphere, lake_options={"patience": 1.0})
        self.assertIsInstance(lake_end.error, lfn.couple.PartnerLost)
        self.assertRegex(lake_end.error.message, "wind of step 0 did not arrive within 1 s: atmosphere is at step 0")
        self.assertRegex(str(atmosphere_end.error), "lake stopped the run: PartnerLost: wind of step 0")

    def test_other_thread_stops_a_wait(self) -> None:
        def lake(channel: lfn.couple.Channel) -> None:
            for step in channel:
                step.put("level", LEVEL)
                threading.Timer(0.2, channel.stop, ["stopped by hand"]).start()
                step.get("wind")

        def atmosphere(channel: lfn.couple.Channel) -> None:
            for step in channel:
                step.get("level")
                step.get("wave")

        text = coupling(BOTH, variable("wave", "lake"))
        lake_end, atmosphere_end = self.couple(text, lake, atmosphere)
        self.assertRegex(str(lake_end.error), "interrupted")
        self.assertRegex(str(atmosphere_end.error), "lake stopped the run: stopped by hand")

    def test_function_is_called_in_each_step(self) -> None:
        def add(number: float):
            def function(step: lfn.couple.Step, inputs: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
                (name,) = set(step_names) - set(inputs)
                return {name: next(iter(inputs.values())) + number}

            step_names = ("level", "wind")
            return function

        def lake(channel: lfn.couple.Channel) -> float:
            return float(lfn.couple.run(channel, add(1), {"level": numpy.zeros((3, 4))})["level"][0, 0])

        def atmosphere(channel: lfn.couple.Channel) -> float:
            return float(lfn.couple.run(channel, add(10), {"wind": numpy.zeros((3, 4))})["wind"][0, 0])

        outcomes = self.couple(coupling(BOTH, steps=4), lake, atmosphere)
        self.assert_finished(*outcomes)
        # Each field passes both functions in turn: two times each.
        self.assertEqual([outcome.value for outcome in outcomes], [22.0, 22.0])


if __name__ == "__main__":
    unittest.main()
