"""Coupling files, plans and arguments: everything that needs no partner."""

from __future__ import annotations

import math
import unittest

import lfn.couple
from support import BOTH, CoupledTest, coupling, variable


class Files(CoupledTest):
    def test_plan_predicts_the_run(self) -> None:
        planned = lfn.couple.plan(self.file(coupling(BOTH, steps=40)))
        self.assertEqual(planned["predicted"]["steps"], 40)
        self.assertEqual({it["name"] for it in planned["predicted"]["variables"]}, {"level", "wind"})
        # Without a lag, each step waits for the one-way delay.
        self.assertGreater(planned["predicted"]["run_seconds"], 40 * 0.2695)
        self.assertLess(planned["predicted"]["run_without_waits_seconds"], 1)

    def test_plan_without_a_path_has_a_hint(self) -> None:
        text = coupling(BOTH).replace('[path]\nrate = "155Mb/s"\nrtt = "539ms"\n', "")
        with self.assertRaisesRegex(lfn.couple.CoupleError, r"no \[path\]") as raised:
            lfn.couple.plan(self.file(text))
        self.assertIn("[path]", raised.exception.hint or "")
        self.assertIn("\nhint: ", str(raised.exception))

    def test_invalid_file_lists_every_problem(self) -> None:
        text = coupling(variable("level", "lake", grid="surfaces"), steps=0)
        for call in (
            lambda file: lfn.couple.plan(file),
            lambda file: lfn.couple.listen(file, "lake", port=0),
            lambda file: lfn.couple.dial(file, "lake", "lfn://"),
        ):
            with self.assertRaises(lfn.couple.CouplingFileError) as raised:
                call(self.file(text))
            self.assertIn("steps = 0", raised.exception.message)
            self.assertIn('grid = "surfaces"', raised.exception.message)
            self.assertEqual(raised.exception.hint, 'did you mean "surface"?')

    def test_file_that_is_not_text_is_named(self) -> None:
        file = self.file("")
        file.write_bytes(b'[coupling]\nname = "\xff"\n')
        with self.assertRaisesRegex(lfn.couple.CouplingFileError, "test.toml: byte 19 is not UTF-8"):
            lfn.couple.plan(file)

    def test_missing_file_is_an_os_error(self) -> None:
        with self.assertRaises(FileNotFoundError):
            lfn.couple.listen(self.directory / "absent.toml", "lake")


class Arguments(CoupledTest):
    def test_unknown_component_is_named(self) -> None:
        with self.assertRaisesRegex(lfn.couple.CoupleError, "no component ocean; it has .*lake"):
            lfn.couple.listen(self.file(coupling(BOTH)), "ocean", address="127.0.0.1", port=0)

    def test_damaged_ticket_is_named(self) -> None:
        with self.assertRaisesRegex(lfn.couple.CoupleError, "'far1' is not a ticket"):
            lfn.couple.dial(self.file(coupling(BOTH)), "lake", "far1")

    def test_invalid_values_are_named(self) -> None:
        file = self.file(coupling(BOTH))
        seconds = "expected seconds above 0, at most 1,000,000,000"
        history = "expected 0 to 18,446,744,073,709,551,615"
        shape = lfn.couple.Declared(shape=(-1,))
        for arguments, expected in [
            ({"patience": -1}, f"patience = -1: {seconds}"),
            ({"patience": 1e30}, f"patience = 1e+30: {seconds}"),
            ({"patience": math.nan}, f"patience = nan: {seconds}"),
            ({"address": "lake1"}, "address = 'lake1': expected an IP address of this host"),
            ({"port": 70000}, "port = 70000: expected 0 to 65,535"),
            ({"port": -1}, "port = -1: expected 0 to 65,535"),
            ({"history": -1}, f"history = -1: {history}"),
            ({"history": 1 << 64}, f"history = 18446744073709551616: {history}"),
            (
                {"declared": {"level": shape}},
                "declared['level'].shape = (-1,): expected 0 to 9,223,372,036,854,775,807",
            ),
        ]:
            with self.subTest(expected), self.assertRaises(ValueError) as raised:
                lfn.couple.listen(file, "lake", **arguments)
            self.assertEqual(str(raised.exception), expected)
        for streams in (-1, 0, 65, 1 << 40):
            with self.subTest(streams=streams), self.assertRaises(ValueError) as raised:
                lfn.couple.dial(file, "lake", "lfn://", streams=streams)
            self.assertEqual(str(raised.exception), f"streams = {streams}: expected 1 to 64")

    def test_arguments_of_another_type_are_named(self) -> None:
        file = self.file(coupling(BOTH))
        declared = lfn.couple.Declared
        for arguments, expected in [
            ({"component": None}, "component = None: expected a string"),
            ({"host": b"far1"}, "host = b'far1': expected a string"),
            ({"port": "7327"}, "port = '7327': expected a whole number"),
            ({"patience": "10"}, "patience = '10': expected a number of seconds"),
            ({"history": 1e9}, "history = 1000000000.0: expected a whole number"),
            ({"resume": "no"}, "resume = 'no': expected True or False"),
            ({"declared": {"level": declared(units=1)}}, "declared['level'].units = 1: expected a string"),
            ({"declared": {"level": declared(shape=12)}}, "declared['level'].shape = 12: expected a tuple of whole numbers"),
            ({"declared": {"level": declared(shape=(3.0, 4))}}, "declared['level'].shape = (3.0, 4): expected a whole number"),
        ]:
            with self.subTest(expected), self.assertRaises(TypeError) as raised:
                lfn.couple.listen(file, **{"component": "lake", **arguments})
            self.assertEqual(str(raised.exception), expected)
        with self.assertRaisesRegex(TypeError, "^ticket = None: expected a string$"):
            lfn.couple.dial(file, "lake", None)

    def test_declared_variable_that_differs_is_named(self) -> None:
        file = self.file(coupling(BOTH))
        cases = [
            (lfn.couple.Declared(units="cm"), r"level: the model has units .*cm.*, the coupling file has .*m"),
            (lfn.couple.Declared(shape=(4, 3)), r"level: the model has shape .*4, ?3.*, the coupling file has .*3, ?4"),
            (lfn.couple.Declared(dtype="f4"), r"level: the model has \w+ .*float32.*, the coupling file has .*float64"),
        ]
        for declared, expected in cases:
            with self.assertRaisesRegex(lfn.couple.ModelDiffers, expected) as raised:
                lfn.couple.listen(file, "lake", address="127.0.0.1", port=0, declared={"level": declared})
            self.assertIn("[variable.level]", raised.exception.hint or "")

    def test_partner_that_never_dials_is_named(self) -> None:
        file = self.file(coupling(BOTH))
        with self.assertRaisesRegex(lfn.couple.PartnerLost, "atmosphere did not connect within") as raised:
            lfn.couple.listen(file, "lake", address="127.0.0.1", port=0, patience=0.2)
        self.assertFalse(raised.exception.is_resumable)
        with self.assertRaises(lfn.couple.PartnerLost) as raised:
            lfn.couple.listen(file, "lake", address="127.0.0.1", port=0, patience=0.2, resume=True)
        self.assertTrue(raised.exception.is_resumable)


if __name__ == "__main__":
    unittest.main()
