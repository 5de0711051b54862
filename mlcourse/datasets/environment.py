"""Real data from the environmental sciences: one loader for each table.

Units are part of the names of the columns. `data/README.md` gives the source, the licence and the changes of each file.
"""

from mlcourse.datasets.files import read_table


def load_co2_mauna_loa():
    """Load the monthly carbon dioxide record of Mauna Loa, Hawaii: one row per month, 1958 to 2025.

    .. warning::
       Months that follow each other are alike, and the record only goes up. Randomly drawn folds put the neighbours of
       each validated month into training, and reward curves that fail beyond the last year. To judge a forecast, train
       on the past and validate on the years that follow. Never use co2_deseasonalised_ppm as a predictor of co2_ppm:
       it is the same series without its season, computed with the months around it.

    Returns
    -------
    pandas.DataFrame of shape (814, 7)
        month (time, the first day of the month), decimal_year (years, the middle of the month), co2_ppm (monthly mean,
        µmol/mol of dry air), co2_deseasonalised_ppm (the same without the seasonal cycle), n_days (days with
        measurements), sd_of_days_ppm (standard deviation of the daily means) and uncertainty_ppm (of the monthly mean).
        The last three are missing up to April 1974, for which the source (Scripps) gives none. Seven values are
        interpolated: June and October 1958 and February to April 1964, which nothing marks, and December 1975 and April
        1984. The sd_of_days_ppm of the last two is missing, too, and their uncertainty_ppm of 0 does not mean exact.
        From December 2022 to 4 July 2023, after an eruption of Mauna Loa, the air was measured on Maunakea, 34 km away.

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    X. Lan, P. Tans and K. W. Thoning (NOAA Global Monitoring Laboratory) and R. Keeling (Scripps Institution of
    Oceanography), Trends in atmospheric carbon dioxide, Mauna Loa, https://gml.noaa.gov/ccgg/trends/, public domain.
    """
    return read_table("co2_mauna_loa_monthly.csv", dates=["month"])


def load_tree_allometry():
    """Load the size and biomass of trees and shrubs from 63 studies: one row per plant.

    .. warning::
       Plants of one study share site, species and methods, so the folds have to keep whole studies together: use
       `study` as the group. The coordinates nearly name the study. Never use stem_mass_kg or leaf_mass_kg as a
       predictor of aboveground_biomass_kg, of which they are parts.

    Returns
    -------
    pandas.DataFrame of shape (2094, 13)
        study (name of the source), species, family (missing for 61 plants of four studies), plant_type (DA, EA:
        deciduous, evergreen angiosperm; DG, EG: gymnosperm), growing_condition (FW wild in the field, PM and PU
        plantation, managed and unmanaged; missing for 29 plants), vegetation (TempF temperate, BorF boreal, TropRF
        tropical rain and TropSF tropical seasonal forest, Sav savannah, Wo woodland; missing for 5 plants),
        latitude_deg_n and longitude_deg_e (of the site, degrees; missing for 63 plants, all of one study), dbh_cm
        (diameter of the stem at breast height), height_m, and the masses aboveground_biomass_kg, stem_mass_kg (with
        branches; missing for 301 plants) and leaf_mass_kg (missing for 120 plants). Values are missing where the table
        of a study gives none. The diameter of small plants was taken at a tenth of their height: 30 are below 1.3 m and
        have no breast height. The first row, a fir with plant_type EA, is a mistake: the other 103 plants of its
        species are EG.

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    D. S. Falster and others (2015), BAAD: a Biomass And Allometry Database for woody plants, Ecology 96, 1445,
    https://doi.org/10.1890/14-1889.1, CC0. The table was put together again from the studies' own tables and has not
    been compared with the compiled database.
    """
    return read_table("tree_allometry.csv")


def load_fiddler_crabs():
    """Load the size of fiddler crabs in 13 salt marshes from Florida to Massachusetts, 2016: one row per crab.

    .. warning::
       Latitude and temperatures are those of the marsh, so there are 13 different values for 392 crabs: crabs of one
       marsh are no independent evidence of what the climate does. Use `site` as the group of the folds. Two pairs of
       marshes share the record of one thermometer (ZI and RC in the air, CC and BC in the water).

    Returns
    -------
    pandas.DataFrame of shape (392, 9), nothing missing
        date (day of sampling), latitude_deg_n (degrees, to one decimal), site (code of the marsh), carapace_width_mm
        (the response), air_temp_annual_mean_degc, air_temp_annual_sd_degc, water_temp_annual_mean_degc and
        water_temp_annual_sd_degc (mean and standard deviation over the year, °C, one value per marsh) and site_name.

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    D. Johnson (2019), Fiddler crab body size in salt marshes from Florida to Massachusetts, USA at PIE and VCR LTER and
    NOAA NERR sites during summer 2016, version 1, Environmental Data Initiative,
    https://doi.org/10.6073/pasta/4c27d2e778d3325d3830a5142e3839bb; from the R package lterdatasampler, CC0.
    """
    return read_table("fiddler_crabs.csv", dates=["date"])


def load_moose_counts():
    """Load the counts of moose in a survey in Alaska: one row per surveyed site.

    Half of the counts are zeros, and their variance is ten times their mean, so they are no Poisson sample. Sites near
    each other have similar counts: validate on blocks of space.

    Returns
    -------
    pandas.DataFrame of shape (218, 6), nothing missing
        x_m and y_m (easting and northing, Alaska Albers, EPSG:3338), elevation_m (taken as metres, the source names no
        unit), stratum (L or M, by which the survey was planned), moose_count (the response) and moose_present (1 if the
        count is not 0, else 0; never a predictor of it).

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    Alaska Department of Fish and Game, Division of Wildlife Conservation, CC0; from the R package of M. Dumelle,
    M. Higham and J. M. Ver Hoef (2023), spmodel, PLoS ONE 18(3), e0282524,
    https://doi.org/10.1371/journal.pone.0282524.
    """
    return read_table("moose_counts.csv")


def load_penguins():
    """Load the measurements of penguins on three islands off Antarctica, 2007 to 2009: one row per measured penguin.

    .. warning::
       No column is an identifier of a bird. individual_id is used again for other species and islands, and within them
       40 labels return in a second year, 8 of them with the other sex: they name a nest rather than a bird. Take
       species, island and individual_id together as the group of the folds. Across species, relations may turn round:
       heavier penguins have less deep bills in the whole table, and deeper ones within each species.

    Returns
    -------
    pandas.DataFrame of shape (344, 11)
        species (Adelie, Chinstrap or Gentoo), island (Biscoe, Dream or Torgersen), bill_length_mm, bill_depth_mm,
        flipper_length_mm and body_mass_g (all four missing for the same two penguins), sex (female or male; missing for
        11), year, delta_15_n_permil and delta_13_c_permil (isotope ratios of the blood, ‰; missing for 14 and 13) and
        individual_id. Only Adelie penguins were measured on all three islands.

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    K. B. Gorman, T. D. Williams and W. R. Fraser (2014), Ecological sexual dimorphism and environmental variability
    within a community of Antarctic penguins (genus Pygoscelis), PLoS ONE 9(3), e90081,
    https://doi.org/10.1371/journal.pone.0090081; from A. M. Horst, A. P. Hill and K. B. Gorman (2020), palmerpenguins,
    https://doi.org/10.5281/zenodo.3960218, CC0.
    """
    return read_table("penguins.csv")


def load_washington_forest_plots():
    """Load plots of the forest inventory in the state of Washington: one row per plot, forested or not.

    .. warning::
       Plots near each other are alike: validate on blocks of space or on counties. tree_no_tree, land_type and
       canopy_cover_pct are maps of trees seen from above and come close to the response: ask first whether they would
       be known where the model is to be used. The coordinates were moved a little on purpose.

    Returns
    -------
    pandas.DataFrame of shape (7107, 20), nothing missing
        The response forested (1 or 0, decided on the ground), year (of that visit), elevation_m, eastness and northness
        (of the slope's aspect, -100 to 100), roughness (of the terrain, no unit given), tree_no_tree (map of trees of
        LANDFIRE), dew_point_annual_degc, precip_annual_mm, temp_annual_mean_degc, temp_january_min_degc,
        temp_annual_max_degc, temp_annual_min_degc, vpd_min_pa and vpd_max_pa (vapour pressure deficit), all of these
        means of 1991 to 2020, canopy_cover_pct (per cent), lon_deg_e and lat_deg_n (degrees), land_type (map of ESA
        WorldCover: Tree, Non-tree vegetation or Barren) and county.

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    USDA Forest Service, Forest Inventory and Analysis; from the R package forested, MIT; its source is G. W. White
    and others (2024), Small area estimation of forest biomass via a two-stage model for continuous zero-inflated data,
    arXiv:2402.03263. Two columns that the package swaps are the right way round here, see `data/README.md`.
    """
    return read_table("washington_forest_plots.csv")


def load_marylebone_air():
    """Load air quality and wind at Marylebone Road, a busy street in London: one row per hour of 2003 and 2004.

    .. warning::
       Hours that follow each other are alike: use blocks of time as folds. Wind direction and hour are circles: 360°
       and 0° are both north, 23 and 0 o'clock are neighbours. NOx contains NO2, and PM10 contains PM2.5: the one gives
       much of the other away (PM2.5, measured apart, exceeds PM10 in 48 hours).

    Returns
    -------
    pandas.DataFrame of shape (17544, 10)
        datetime_gmt (time in GMT, no hour left out), wind_speed_m_s, wind_from_deg (degrees from north, in steps of
        10), nox_ppb, no2_ppb, o3_ppb, pm10_ug_m3 (raw reading of the instrument, a TEOM), so2_ppb, co_ppm and
        pm25_ug_m3. Pollutants are missing in gaps, some of weeks; why, the source does not say: NOx lacks 555, NO2 569,
        ozone 322, PM10 286, CO 474 and PM2.5 947 hours, SO2 3,307, among them the last 2,215. The 181 zeros of NOx, all
        in 2004, are hardly measurements either: the next smallest value is 4, and NO2 is above 0 in 31 of these hours.
        Wind speed lacks 4 hours, the direction 6. The seven hours with direction 0 are calm: there the direction means
        nothing.

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    D. C. Carslaw and K. Ropkins (2012), openair: an R package for air quality data analysis, Environmental Modelling &
    Software 27-28, 52-61, https://doi.org/10.1016/j.envsoft.2011.09.008; data of the London Air Quality Archive as
    carried by that package, MIT.
    """
    return read_table("marylebone_air_hourly.csv", dates=["datetime_gmt"])


def load_toolik_weather():
    """Load the weather at Toolik Lake, Alaska: one row per day from June 1988 to December 2018.

    .. warning::
       Days that follow each other are alike: use blocks of time, such as years, as folds. The wind is not missing
       completely at random: 13 % of the days in February and March lack it, and 3 % of those in July. 94 % of the
       gaps lie in seven years. Whoever drops incomplete rows drops more of the winter than of the summer.

    Returns
    -------
    pandas.DataFrame of shape (11171, 4)
        date (no day left out), air_temp_mean_degc (mean of the day, °C, none missing), precip_mm (of the day; missing
        on 420 days, none in July and August) and wind_speed_mean_m_s (mean of the day; missing on 826 days). Why values
        are missing, the source does not say.

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    G. Shaver (2019), A multi-year DAILY weather file for the Toolik Field Station at Toolik Lake, AK starting 1988 to
    present, version 4, Environmental Data Initiative, https://doi.org/10.6073/pasta/ce0f300cdf87ec002909012abefd9c5c;
    from the R package lterdatasampler, CC0.
    """
    return read_table("toolik_weather_daily.csv", dates=["date"])


def load_portal_rodents():
    """Load the rodents caught on eight control plots in the desert near Portal, Arizona: one row per census.

    A census takes place at about each new moon. The counts are not scaled by the effort of trapping, which was not
    quite constant. Censuses that follow each other are alike: use blocks of time as folds.

    Returns
    -------
    pandas.DataFrame of shape (436, 24)
        newmoon_number (of the new moon, from 1 to 467; 31 have no census), census_date (July 1977 to March 2015),
        ndvi_month (greenness of the month, no unit; missing for 61 censuses, among them all before July 1981) and the
        number of animals of 21 species: BA `Baiomys taylori`, DM `Dipodomys merriami`, DO `D. ordii`,
        DS `D. spectabilis`, NEO_ALB `Neotoma albigula`, OL `Onychomys leucogaster`, OT `O. torridus`,
        PB `Chaetodipus baileyi`, PE `Peromyscus eremicus`, PF `Perognathus flavus`, PH `Chaetodipus hispidus`,
        PI `C. intermedius`, PL `Peromyscus leucopus`, PM `P. maniculatus`, PP `Chaetodipus penicillatus`,
        RF `Reithrodontomys fulvescens`, RM `R. megalotis`, RO `R. montanus`, SF `Sigmodon fulviventer`,
        SH `S. hispidus` and SO `S. ochrognathus`. A species that was not caught has a 0. The source calls NEO_ALB "NA",
        which many programs read as a missing value.

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    S. K. M. Ernest and others (2018), The Portal Project: a long-term study of a Chihuahuan desert ecosystem, bioRxiv,
    https://doi.org/10.1101/332783, CC0; E. M. Christensen, D. J. Harris and S. K. M. Ernest (2018), Long-term community
    change through multiple rapid transitions in a desert rodent community, Ecology 99, 1523-1529,
    https://doi.org/10.1002/ecy.2373; counts as carried by the R package LDATS, MIT.
    """
    return read_table("portal_rodents.csv", dates=["census_date"])


def load_belgian_soil_nir():
    """Load near-infrared spectra of soils from fields in Wallonia, Belgium: one row per dried and sieved sample.

    .. warning::
       Neighbouring wavelengths are nearly copies of each other. Three properties were measured in the laboratory, and
       each may be missing: choose one as the response, keep the rows that have it, and do not use the other two as
       predictors if the spectrum is to replace the laboratory. Which samples come from one field is not known. Some
       soils seem to be in the table twice, also on both sides of the split: spectra that are nearest to each other and
       have the same carbon and nitrogen. Use equal laboratory values as the groups of the folds.

    Returns
    -------
    pandas.DataFrame of shape (825, 75)
        sample (number of the row, no predictor), total_nitrogen_g_kg (g per kg of dry soil; missing for 180 samples),
        organic_carbon_g_100g (g per 100 g of dry soil; missing for 93), cec_meq_100g (cation exchange capacity,
        milliequivalents per 100 g of dry soil; missing for 378), train (1 in the first 618 rows, 0 in the 207 test
        samples, the split of a challenge in 2006) and the absorbance (no unit) at 70 wavelengths, abs_1100nm to
        abs_2480nm in steps of 20 nm. Why properties are missing, the source does not say.

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    J. A. Fernández Pierna and P. Dardenne (2008), Soil parameter quantification by NIRS as a Chemometric challenge at
    'Chimiométrie 2006', Chemometrics and Intelligent Laboratory Systems 91, 94-98; from the R package prospectr, MIT.
    """
    return read_table("belgian_soil_nir.csv")


def load_hurricane_intensification():
    """Load six-hourly positions of Atlantic tropical cyclones, 1982 to 2024: one row per fix of a storm.

    .. warning::
       The question is whether the wind will rise rapidly within a day. max_wind_in_24h_kt is that future, from which
       the response was computed: never use it as a predictor. The days of one storm overlap: use `storm_id` as the
       group of the folds, or validate on later years. Only fixes of storms that were still tropical a day later are
       here, which no forecaster knows beforehand; and the record was revised after each season, so it knows more than
       a forecaster did.

    Returns
    -------
    pandas.DataFrame of shape (11450, 13)
        storm_id (name and year of the first fix, 606 storms), time_utc, status (tropical depression, tropical storm or
        hurricane), lat_deg_n and lon_deg_e (degrees), max_wind_kt (knots), pressure_hpa (in the centre), the state 12
        hours earlier lat_12h_ago_deg_n, lon_12h_ago_deg_e, max_wind_12h_ago_kt and pressure_12h_ago_hpa (all four
        missing for 821 fixes, nearly all of them the first or second of a storm: missing means young),
        max_wind_in_24h_kt (24 hours later) and the response rapid_intensification (1 if the wind rises by 30 knots or
        more within 24 hours, in 6 % of the rows, else 0).

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    C. W. Landsea and J. L. Franklin (2013), Atlantic hurricane database uncertainty and presentation of a new database
    format, Monthly Weather Review 141, 3576-3592, https://doi.org/10.1175/MWR-D-12-00254.1; the database HURDAT2 of
    NOAA, public domain, as carried by the R package dplyr, MIT.
    """
    return read_table("hurricane_intensification.csv", dates=["time_utc"])


def load_madison_lake_ice():
    """Load the days with ice on two lakes in Madison, Wisconsin: one row per lake and winter, 1851 to 2019.

    .. warning::
       The two lakes have the same winters, so the rows of one winter are no independent evidence: use winter_start_year
       as the group of the folds. Never use ice_on or ice_off as a predictor of the duration.

    Returns
    -------
    pandas.DataFrame of shape (334, 6)
        lake (Lake Mendota or Lake Monona), winter_start_year (year in which the winter began; 1854 is left out),
        ice_on and ice_off (dates of freezing and break-up; missing for one and two rows of the first winters),
        ice_duration_days (days with ice; days on which the lake was open in between do not count, so it can be far
        less than the days from ice_on to ice_off; missing for 3 rows) and air_temp_nov_mar_degc (mean air temperature
        from November to March, °C; missing up to the winter of 1868, before the record begins, and in 2019). The source
        marks temperatures before 1884 as biased.

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    J. J. Magnuson, S. R. Carpenter and E. H. Stanley (2021), North Temperate Lakes LTER: Ice Duration - Madison Lakes
    Area 1853-current, version 35, https://doi.org/10.6073/pasta/ab31f2489ee436beb73fc8f1d0213d97; L. Anderson and
    D. Robertson (2020), Madison Wisconsin Daily Meteorological Data 1869-current, version 32,
    https://doi.org/10.6073/pasta/e3ff85971d817e9898bb8a83fb4c3a8b; both Environmental Data Initiative, from the R
    package lterdatasampler, CC0.
    """
    return read_table("madison_lake_ice.csv", dates=["ice_on", "ice_off"])


def load_finley_tornado():
    """Load Finley's tornado forecasts of 1884: one row per combination of forecast and event, with its number.

    The forecasts are right in 96.6 % of all cases, and "never a tornado" would have been right in 98.2 %.

    Returns
    -------
    pandas.DataFrame of shape (4, 3), nothing missing
        forecast_tornado and observed_tornado (1 or 0) and n (number of forecasts, 2,803 in all).

    Raises
    ------
    FileNotFoundError
        If the data folder is missing.

    References
    ----------
    J. P. Finley (1884), Tornado predictions, American Meteorological Journal 1, 85-88; numbers as in A. H. Murphy
    (1996), The Finley affair: a signal event in the history of forecast verification, Weather and Forecasting 11, 3-20.
    """
    return read_table("finley_tornado_1884.csv")
