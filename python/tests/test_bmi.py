"""Models with the Basic Model Interface."""

from __future__ import annotations

import unittest
from types import SimpleNamespace
from typing import Any

import bmipy
import numpy
from numpy.typing import NDArray

import lfn.couple
import lfn.couple.bmi
from support import CoupledTest, coupling, variable


class Basin(bmipy.Bmi):
    """A synthetic lake: the level of each point rises by the wind in each time step."""

    INPUT, OUTPUT = "atmosphere_wind__speed", "lake_water__level"

    def __init__(self, **properties: Any) -> None:
        self.properties = {"units": "m", "dtype": "float64", "shape": (3, 4), "dt": 10.0, "grid": "uniform_rectilinear"}
        self.properties |= properties
        self.is_finalized = False

    def initialize(self, config_file: str) -> None:
        self.config_file = config_file
        self.time = 0.0
        self.values = {name: numpy.zeros(self.properties["shape"], self.dtype) for name in (self.INPUT, self.OUTPUT)}

    @property
    def dtype(self) -> numpy.dtype[Any]:
        return numpy.dtype({"double": "float64", "float": "float32"}.get(self.properties["dtype"], self.properties["dtype"]))

    def update(self) -> None:
        self.values[self.OUTPUT] += self.values[self.INPUT]
        self.time += self.properties["dt"]

    def update_until(self, time: float) -> None:
        raise NotImplementedError

    def finalize(self) -> None:
        self.is_finalized = True

    def get_component_name(self) -> str:
        return "synthetic basin"

    def get_input_item_count(self) -> int:
        return 1

    def get_output_item_count(self) -> int:
        return 1

    def get_input_var_names(self) -> tuple[str, ...]:
        return (self.INPUT,)

    def get_output_var_names(self) -> tuple[str, ...]:
        return (self.OUTPUT,)

    def get_var_grid(self, name: str) -> int:
        return 0

    def get_var_type(self, name: str) -> str:
        return self.properties["dtype"]

    def get_var_units(self, name: str) -> str:
        return self.properties["units"] if name == self.OUTPUT else "m s-1"

    def get_var_itemsize(self, name: str) -> int:
        return self.dtype.itemsize

    def get_var_nbytes(self, name: str) -> int:
        return self.values[name].nbytes

    def get_var_location(self, name: str) -> str:
        return "node"

    def get_current_time(self) -> float:
        return self.time

    def get_start_time(self) -> float:
        return 0.0

    def get_end_time(self) -> float:
        return 1e9

    def get_time_units(self) -> str:
        return self.properties.get("time_units", "s")

    def get_time_step(self) -> float:
        return self.properties["dt"]

    def get_value(self, name: str, dest: NDArray[Any]) -> NDArray[Any]:
        dest[:] = self.values[name].reshape(-1)
        return dest

    def get_value_ptr(self, name: str) -> NDArray[Any]:
        return self.values[name].reshape(-1)

    def get_value_at_indices(self, name: str, dest: NDArray[Any], inds: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError

    def set_value(self, name: str, src: NDArray[Any]) -> None:
        self.values[name].reshape(-1)[:] = src

    def set_value_at_indices(self, name: str, inds: NDArray[Any], src: NDArray[Any]) -> None:
        raise NotImplementedError

    def get_grid_rank(self, grid: int) -> int:
        return len(self.properties["shape"])

    def get_grid_size(self, grid: int) -> int:
        return int(numpy.prod(self.properties["shape"]))

    def get_grid_type(self, grid: int) -> str:
        return self.properties["grid"]

    def get_grid_shape(self, grid: int, shape: NDArray[Any]) -> NDArray[Any]:
        shape[:] = self.properties["shape"]
        return shape

    def get_grid_spacing(self, grid: int, spacing: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError

    def get_grid_origin(self, grid: int, origin: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError

    def get_grid_x(self, grid: int, x: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError

    def get_grid_y(self, grid: int, y: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError

    def get_grid_z(self, grid: int, z: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError

    def get_grid_node_count(self, grid: int) -> int:
        raise NotImplementedError

    def get_grid_edge_count(self, grid: int) -> int:
        raise NotImplementedError

    def get_grid_face_count(self, grid: int) -> int:
        raise NotImplementedError

    def get_grid_edge_nodes(self, grid: int, edge_nodes: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError

    def get_grid_face_edges(self, grid: int, face_edges: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError

    def get_grid_face_nodes(self, grid: int, face_nodes: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError

    def get_grid_nodes_per_face(self, grid: int, nodes_per_face: NDArray[Any]) -> NDArray[Any]:
        raise NotImplementedError


NAMES = {"level": Basin.OUTPUT, "wind": Basin.INPUT}
TABLES = variable("level", "lake"), variable("wind", "atmosphere", units="m s-1")


def blow(channel: lfn.couple.Channel) -> list[float]:
    """Puts a wind of 1 m/s, and returns the first level of each step."""
    levels = []
    for step in channel:
        step.put("wind", numpy.ones((3, 4)))
        levels.append(float(step.get("level")[0, 0]))
    return levels


class BasicModelInterface(CoupledTest):
    def levels(self, basin: Basin, **options: Any) -> list[float]:
        def lake(channel: lfn.couple.Channel) -> None:
            lfn.couple.bmi.run_bmi(basin, channel, "basin.yaml", names=NAMES)

        outcomes = self.couple(coupling(*TABLES, steps=4, **options), lake, blow)
        self.assert_finished(*outcomes)
        self.assertEqual(basin.config_file, "basin.yaml")
        self.assertTrue(basin.is_finalized)
        return outcomes[1].value

    def test_model_is_updated_once_in_each_step(self) -> None:
        self.assertEqual(self.levels(Basin()), [0.0, 1.0, 2.0, 3.0])

    def test_model_is_updated_until_the_end_of_the_step(self) -> None:
        self.assertEqual(self.levels(Basin(), model_step="1m"), [0.0, 6.0, 12.0, 18.0])

    def test_time_units_of_the_model_are_converted(self) -> None:
        self.assertEqual(self.levels(Basin(dt=0.5, time_units="min"), model_step="1m"), [0.0, 2.0, 4.0, 6.0])

    def test_names_of_c_types_are_understood(self) -> None:
        self.assertEqual(self.levels(Basin(dtype="double")), [0.0, 1.0, 2.0, 3.0])

    def test_differences_stop_both_ends_before_the_first_step(self) -> None:
        cases = [
            (Basin(units="cm"), None, "level: the model has units 'cm', the coupling file has 'm'"),
            (Basin(shape=(4, 3)), None, r"level: the model has shape \(4, 3\), the coupling file has \(3, 4\)"),
            (Basin(grid="unstructured"), None, r"level: the model has shape \(12,\), the coupling file has \(3, 4\)"),
            (Basin(dtype="float"), None, "wind: the model has type 'float32', the coupling file has 'float64'"),
            (Basin(dt=25.0), "1m", "the model has a time step of 25 s, the coupling file has model_step = 60 s"),
            (Basin(time_units="fortnights"), "1m", "the model has time units 'fortnights'"),
        ]
        for basin, model_step, expected in cases:
            with self.subTest(expected):

                def lake(channel: lfn.couple.Channel, basin: Basin = basin) -> None:
                    lfn.couple.bmi.run_bmi(basin, channel, "", names=NAMES)

                text = coupling(*TABLES, model_step=model_step)
                lake_end, atmosphere_end = self.couple(text, lake, blow)
                self.assertIsInstance(lake_end.error, lfn.couple.ModelDiffers)
                self.assertRegex(lake_end.error.message, expected)
                self.assertIsInstance(atmosphere_end.error, lfn.couple.PartnerStopped)
                self.assertRegex(atmosphere_end.error.message, expected)
                self.assertTrue(basin.is_finalized)

    def test_resume_without_a_function_that_restores_is_named(self) -> None:
        basin = Basin()
        channel = SimpleNamespace(first_step=3)
        with self.assertRaisesRegex(lfn.couple.CoupleError, "resumes from step 3.*restores a model"):
            lfn.couple.bmi.run_bmi(basin, channel, "", names=NAMES)
        self.assertTrue(basin.is_finalized)

    def test_unknown_names_are_named(self) -> None:
        names = {"level": "level", "depth": "depth"}

        def lake(channel: lfn.couple.Channel) -> None:
            lfn.couple.bmi.run_bmi(Basin(), channel, "", names=names)

        lake_end, _ = self.couple(coupling(*TABLES), lake, blow)
        for expected in (
            "depth: the coupling file has no such variable",
            "level: the model has no output variable level; it has lake_water__level",
            "wind: the model has no input variable wind; it has atmosphere_wind__speed",
        ):
            self.assertIn(expected, lake_end.error.message)


if __name__ == "__main__":
    unittest.main()
