"""Groups of the classes of CUB-200-2011 and Cars196, by class number.

They are those of Chang et al. (Your "Flamingo" is My "Bird", CVPR 2021), which the authors of H-GLDv2 adopted. For
the birds, their copy swaps the red-legged kittiwake (84), a gull, with the white-breasted kingfisher (83), one of the
Halcyonidae; this is corrected here.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Class numbers of the birds of each family, by order.
_BIRDS: Mapping[str, Mapping[str, str]] = {
    "Anseriformes": {"Anatidae": "46 87 89-90"},
    "Apodiformes": {"Trochilidae": "67-70"},
    "Caprimulgiformes": {"Caprimulgidae": "22 92 105"},
    "Charadriiformes": {"Alcidae": "5-8 58 106", "Laridae": "59-66 84 141-147", "Stercorariidae": "71-72"},
    "Coraciiformes": {"Alcedinidae": "79-82", "Halcyonidae": "83"},
    "Cuculiformes": {"Cuculidae": "4 31-33 110"},
    "Gaviiformes": {"Gaviidae": "86"},
    "Passeriformes": {
        "Alaudidae": "85",
        "Bombycillidae": "185-186",
        "Cardinalidae": "14-17 54 57 139-140",
        "Certhiidae": "28",
        "Corvidae": "29-30 73-75 93 107-108",
        "Fringillidae": "34-35 47-48 55-56",
        "Hirundinidae": "135-138",
        "Icteridae": "9-13 26-27 49 88 95-98",
        "Icteriidae": "20",
        "Laniidae": "111-112",
        "Mimidae": "19 91 149-150",
        "Motacillidae": "104",
        "Parulidae": "99 109 158-184 200",
        "Passerellidae": "21 76 113-117 119-133 148",
        "Passeridae": "118",
        "Ptilonorhynchidae": "18",
        "Sittidae": "94",
        "Sturnidae": "134",
        "Troglodytidae": "193-199",
        "Tyrannidae": "37-43 77-78 102-103",
        "Vireonidae": "151-157",
    },
    "Pelecaniformes": {"Pelecanidae": "100-101"},
    "Piciformes": {"Picidae": "36 187-192"},
    "Podicipediformes": {"Podicipedidae": "50-53"},
    "Procellariiformes": {"Diomedeidae": "1-3", "Procellariidae": "45"},
    "Suliformes": {"Phalacrocoracidae": "23-25", "Fregatidae": "44"},
}

#: Class numbers of the cars of each type. Most model names contain the type.
_CARS = {
    "cab": "53-54 65 69-70 74-75 86-87 90-91 106 111 113-114 122 124-125",
    "convertible": "8 10 12 21 27 31 36 38-39 45 55 59 77 80-81 100 102-103 107 123 157-158 161 175 179 196",
    "coupe": "6 9 11 13-15 22 25 28 34 42-43 46 56-57 66 72 93 99 101 104 112 128 141 144 150-153 160 163 171-172 "
    "180",
    "hatchback": "7 19 98 130 139 168 170 178 183 190-193",
    "minivan": "60 78 85 108 126-127 174",
    "sedan": "2-5 16-17 20 23-24 26 29 35 40-41 44 47 49 51 61 63 67 73 79 96-97 105 115 117 129 134-138 140 156 "
    "162 164-165 167 173 176-177 181-182 184-185 187-188 194",
    "SUV": "1 32-33 37 48 50 52 58 62 68 76 89 94-95 109-110 118 120-121 131-133 142-143 145-149 154-155 159 186 "
    "189 195",
    "van": "64 71 88 119 166 169",
    "wagon": "18 30 82-84 92 116",
}


def _by_class(groups: Mapping[str, str]) -> dict[int, str]:
    """Return the group of each class number.

    >>> _by_class({"cab": "1 4-6"})
    {1: 'cab', 4: 'cab', 5: 'cab', 6: 'cab'}
    """
    ranges = [(group, item.partition("-")) for group, text in groups.items() for item in text.split()]
    return {n: group for group, (first, _, last) in ranges for n in range(int(first), int(last or first) + 1)}


#: Family of each bird, by class number.
FAMILY = {number: family for families in _BIRDS.values() for number, family in _by_class(families).items()}
#: Order of each family.
ORDER = {family: order for order, families in _BIRDS.items() for family in families}
#: Type of each car, by class number.
CAR_TYPE = _by_class(_CARS)
