WITH foldaway_secret AS (
  SELECT
    CAST(:group_key AS VARCHAR) AS "fa_key"
), foldaway_records AS (
  SELECT
    *
  FROM shop.visits
  WHERE
    day = '2026-03-01'
), foldaway_read AS (
  SELECT
    CAST("r"."variant" AS VARCHAR) AS "fa_t0",
    CASE
      WHEN NOT LOWER(TYPEOF(TO_VARIANT("r"."variant"))) IN ('integer', 'varchar', 'null')
      THEN 1
      ELSE 0
    END AS "fa_u0",
    CAST("r"."country" AS VARCHAR) AS "fa_t1",
    CASE
      WHEN NOT LOWER(TYPEOF(TO_VARIANT("r"."country"))) IN ('integer', 'varchar', 'null')
      THEN 1
      ELSE 0
    END AS "fa_u1",
    CAST("r"."user_id" AS VARCHAR) AS "fa_t2",
    CASE
      WHEN NOT LOWER(TYPEOF(TO_VARIANT("r"."user_id"))) IN ('integer', 'varchar', 'null')
      THEN 1
      ELSE 0
    END AS "fa_u2",
    CAST("r"."before" AS DOUBLE) AS "fa_x0",
    CAST("r"."revenue" AS DOUBLE) AS "fa_x1",
    CAST("r"."seconds" AS DOUBLE) AS "fa_x2",
    CAST("r"."latency" AS DOUBLE) AS "fa_x3"
  FROM foldaway_records AS r
), foldaway_checked AS (
  SELECT
    CASE WHEN "fa_t0" = 'control' THEN 0 WHEN "fa_t0" = 'treatment' THEN 1 ELSE -1 END AS "fa_c0",
    CONCAT(':', "fa_t1") AS "fa_c1",
    "fa_x0" AS "fa_v0",
    "fa_x1" AS "fa_v1",
    CASE WHEN NOT "fa_x2" = CAST('NaN' AS DOUBLE) THEN "fa_x2" END AS "fa_v2",
    "fa_x3" AS "fa_v3",
    CASE
      WHEN "fa_t0" IS NULL
      THEN 0
      WHEN NOT (
        "fa_t0" = 'control' OR "fa_t0" = 'treatment'
      )
      THEN 1
      ELSE -1
    END AS "fa_q0",
    CASE
      WHEN "fa_x0" IS NULL
      THEN 2
      WHEN "fa_x0" = CAST('NaN' AS DOUBLE)
      THEN 3
      WHEN ABS("fa_x0") > 1.7976931348623157e308
      THEN 4
      WHEN ABS("fa_x0") > 1e40
      THEN 5
      ELSE -1
    END AS "fa_q1",
    CASE
      WHEN "fa_x1" IS NULL
      THEN 7
      WHEN "fa_x1" = CAST('NaN' AS DOUBLE)
      THEN 8
      WHEN ABS("fa_x1") > 1.7976931348623157e308
      THEN 9
      WHEN ABS("fa_x1") > 1e40
      THEN 10
      ELSE -1
    END AS "fa_q2",
    CASE
      WHEN NOT "fa_x2" = CAST('NaN' AS DOUBLE) AND ABS("fa_x2") > 1.7976931348623157e308
      THEN 12
      WHEN NOT "fa_x2" = CAST('NaN' AS DOUBLE) AND ABS("fa_x2") > 1e40
      THEN 13
      ELSE -1
    END AS "fa_q3",
    CASE
      WHEN "fa_x3" IS NULL
      THEN 15
      WHEN "fa_x3" = CAST('NaN' AS DOUBLE)
      THEN 16
      WHEN ABS("fa_x3") > 1.7976931348623157e308
      THEN 17
      WHEN ABS("fa_x3") > 1e40
      THEN 18
      ELSE -1
    END AS "fa_q4",
    CASE WHEN "fa_t1" IS NULL THEN 20 ELSE -1 END AS "fa_q5",
    CASE WHEN "fa_t2" IS NULL THEN 21 WHEN "fa_u2" = 1 THEN 22 ELSE -1 END AS "fa_q6",
    "fa_t2" AS "fa_unit",
    SHA2(CONCAT((
      SELECT
        "fa_key"
      FROM foldaway_secret
    ), "fa_t2"), 256) AS "fa_hash"
  FROM foldaway_read
), foldaway_judged AS (
  SELECT
    *,
    CASE
      WHEN "fa_q0" >= 0
      OR "fa_q1" >= 0
      OR "fa_q2" >= 0
      OR "fa_q3" >= 0
      OR "fa_q4" >= 0
      OR "fa_q5" >= 0
      OR "fa_q6" >= 0
      THEN 1
      ELSE 0
    END AS "fa_bad"
  FROM foldaway_checked
), foldaway_good AS (
  SELECT
    "fa_c0" AS "fa_arm",
    "fa_c1" AS "fa_l0",
    (
      (
        CHARINDEX(SUBSTR("fa_hash", 1, 1), '0123456789abcdef') - 1
      ) * 256
    ) + (
      (
        CHARINDEX(SUBSTR("fa_hash", 2, 1), '0123456789abcdef') - 1
      ) * 16
    ) + (
      CHARINDEX(SUBSTR("fa_hash", 3, 1), '0123456789abcdef') - 1
    ) AS "fa_group",
    "fa_unit",
    "fa_v1" AS "fa_y0",
    CASE WHEN "fa_v2" < 30.0e0 THEN 1.0e0 WHEN NOT "fa_v2" IS NULL THEN 0.0e0 END AS "fa_y1",
    CASE
      WHEN "fa_v3" < 1.0e0
      THEN 1.0e0
      WHEN "fa_v3" > 60000.0e0
      THEN 60000.0e0
      ELSE "fa_v3"
    END AS "fa_y2",
    "fa_v1" - (
      0.81e0 * (
        "fa_v0" - 52.0e0
      )
    ) AS "fa_y3",
    CASE WHEN "fa_v2" < 30.0e0 THEN 1.0e0 WHEN NOT "fa_v2" IS NULL THEN 0.0e0 END - (
      0.0e0 * (
        "fa_v0" - 52.0e0
      )
    ) AS "fa_y4",
    CASE
      WHEN "fa_v3" < 1.0e0
      THEN 1.0e0
      WHEN "fa_v3" > 60000.0e0
      THEN 60000.0e0
      ELSE "fa_v3"
    END - (
      0.0e0 * (
        "fa_v0" - 52.0e0
      )
    ) AS "fa_y5",
    CASE
      WHEN "fa_v3" < 1.0e0
      THEN 0
      WHEN "fa_v3" > 60000.0e0
      THEN 227
      WHEN "fa_v3" >= 60000.0e0
      THEN 226
      WHEN NOT "fa_v3" IS NULL
      THEN CASE
        WHEN (
          CAST(FLOOR((
            (
              LN("fa_v3" / 1.0e0) * 20.54153327654797e0
            ) + 1e-9
          )) AS BIGINT) + 1
        ) > 226
        THEN 226
        ELSE CAST(FLOOR((
          (
            LN("fa_v3" / 1.0e0) * 20.54153327654797e0
          ) + 1e-9
        )) AS BIGINT) + 1
      END
    END AS "fa_b0"
  FROM foldaway_judged
  WHERE
    "fa_bad" < 1
), foldaway_centers AS (
  SELECT
    "fa_arm" AS "fa_of",
    COALESCE(AVG("fa_y0"), 0.0e0) AS "fa_m0",
    COALESCE(AVG("fa_y1"), 0.0e0) AS "fa_m1",
    COALESCE(AVG("fa_y2"), 0.0e0) AS "fa_m2",
    COALESCE(AVG("fa_y3"), 0.0e0) AS "fa_m3",
    COALESCE(AVG("fa_y4"), 0.0e0) AS "fa_m4",
    COALESCE(AVG("fa_y5"), 0.0e0) AS "fa_m5"
  FROM foldaway_good
  GROUP BY
    "fa_arm"
), foldaway_centered AS (
  SELECT
    *,
    "fa_y0" - "fa_m0" AS "fa_d0",
    "fa_y1" - "fa_m1" AS "fa_d1",
    "fa_y2" - "fa_m2" AS "fa_d2",
    "fa_y3" - "fa_m3" AS "fa_d3",
    "fa_y4" - "fa_m4" AS "fa_d4",
    "fa_y5" - "fa_m5" AS "fa_d5"
  FROM foldaway_good
  JOIN foldaway_centers
    ON "fa_of" = "fa_arm"
), foldaway_cells_0 AS (
  SELECT
    "fa_arm" AS "fa_arm_key",
    "fa_group" % 128 AS "fa_grp_key",
    COUNT(*) AS "fa_n",
    CAST(COUNT("fa_d0") AS DOUBLE) AS "fa_s0",
    CAST(COUNT("fa_d1") AS DOUBLE) AS "fa_s1",
    CAST(COUNT("fa_d2") AS DOUBLE) AS "fa_s2",
    SUM("fa_d0") AS "fa_s3",
    SUM("fa_d1") AS "fa_s4",
    SUM("fa_d2") AS "fa_s5",
    SUM("fa_d3") AS "fa_s6",
    SUM("fa_d4") AS "fa_s7",
    SUM("fa_d5") AS "fa_s8",
    SUM("fa_d0" * "fa_d0") AS "fa_s9",
    SUM("fa_d1" * "fa_d1") AS "fa_s10",
    SUM("fa_d2" * "fa_d2") AS "fa_s11",
    SUM("fa_d3" * "fa_d3") AS "fa_s12",
    SUM("fa_d4" * "fa_d4") AS "fa_s13",
    SUM("fa_d5" * "fa_d5") AS "fa_s14",
    SUM("fa_d0" * "fa_d3") AS "fa_s15",
    SUM("fa_d1" * "fa_d4") AS "fa_s16",
    SUM("fa_d2" * "fa_d5") AS "fa_s17",
    SUM(ABS("fa_y0")) AS "fa_s18",
    SUM(ABS("fa_y1")) AS "fa_s19",
    SUM(ABS("fa_y2")) AS "fa_s20"
  FROM foldaway_centered
  GROUP BY
    "fa_arm",
    "fa_group" % 128
), foldaway_cells_1 AS (
  SELECT
    "fa_arm" AS "fa_arm_key",
    "fa_b0" AS "fa_place_key",
    "fa_group" % 32 AS "fa_grp_key",
    COUNT(*) AS "fa_n"
  FROM foldaway_centered
  WHERE
    NOT "fa_b0" IS NULL
  GROUP BY
    "fa_arm",
    "fa_b0",
    "fa_group" % 32
), foldaway_cells_2 AS (
  SELECT
    "fa_arm" AS "fa_arm_key",
    "fa_l0" AS "fa_level_key",
    "fa_group" % 128 AS "fa_grp_key",
    COUNT(*) AS "fa_n",
    CAST(COUNT("fa_d0") AS DOUBLE) AS "fa_s0",
    CAST(COUNT("fa_d1") AS DOUBLE) AS "fa_s1",
    CAST(COUNT("fa_d2") AS DOUBLE) AS "fa_s2",
    SUM("fa_d0") AS "fa_s3",
    SUM("fa_d1") AS "fa_s4",
    SUM("fa_d2") AS "fa_s5",
    SUM("fa_d3") AS "fa_s6",
    SUM("fa_d4") AS "fa_s7",
    SUM("fa_d5") AS "fa_s8",
    SUM("fa_d0" * "fa_d0") AS "fa_s9",
    SUM("fa_d1" * "fa_d1") AS "fa_s10",
    SUM("fa_d2" * "fa_d2") AS "fa_s11",
    SUM("fa_d3" * "fa_d3") AS "fa_s12",
    SUM("fa_d4" * "fa_d4") AS "fa_s13",
    SUM("fa_d5" * "fa_d5") AS "fa_s14",
    SUM("fa_d0" * "fa_d3") AS "fa_s15",
    SUM("fa_d1" * "fa_d4") AS "fa_s16",
    SUM("fa_d2" * "fa_d5") AS "fa_s17",
    SUM(ABS("fa_y0")) AS "fa_s18",
    SUM(ABS("fa_y1")) AS "fa_s19",
    SUM(ABS("fa_y2")) AS "fa_s20"
  FROM foldaway_centered
  GROUP BY
    "fa_arm",
    "fa_l0",
    "fa_group" % 128
), foldaway_cells_3 AS (
  SELECT
    "fa_arm" AS "fa_arm_key",
    "fa_l0" AS "fa_level_key",
    "fa_b0" AS "fa_place_key",
    "fa_group" % 32 AS "fa_grp_key",
    COUNT(*) AS "fa_n"
  FROM foldaway_centered
  WHERE
    NOT "fa_b0" IS NULL
  GROUP BY
    "fa_arm",
    "fa_l0",
    "fa_b0",
    "fa_group" % 32
), foldaway_lines AS (
  SELECT
    CAST('answer' AS VARCHAR) AS "part",
    CAST(CONCAT(
      'FINGERPRINT DIGEST ',
      SUBSTR(
        SHA2(
          CONCAT(
            (
              SELECT
                "fa_key"
              FROM foldaway_secret
            ),
            'FINGERPRINT'
          ),
          256
        ),
        1,
        16
      )
    ) AS VARCHAR) AS "level",
    CAST(0 AS BIGINT) AS "arm",
    CAST(0 AS BIGINT) AS "place",
    CAST(0 AS BIGINT) AS "grp",
    CAST(0 AS BIGINT) AS "n",
    CAST(0.0e0 AS DOUBLE) AS "s0",
    CAST(0.0e0 AS DOUBLE) AS "s1",
    CAST(0.0e0 AS DOUBLE) AS "s2",
    CAST(0.0e0 AS DOUBLE) AS "s3",
    CAST(0.0e0 AS DOUBLE) AS "s4",
    CAST(0.0e0 AS DOUBLE) AS "s5",
    CAST(0.0e0 AS DOUBLE) AS "s6",
    CAST(0.0e0 AS DOUBLE) AS "s7",
    CAST(0.0e0 AS DOUBLE) AS "s8",
    CAST(0.0e0 AS DOUBLE) AS "s9",
    CAST(0.0e0 AS DOUBLE) AS "s10",
    CAST(0.0e0 AS DOUBLE) AS "s11",
    CAST(0.0e0 AS DOUBLE) AS "s12",
    CAST(0.0e0 AS DOUBLE) AS "s13",
    CAST(0.0e0 AS DOUBLE) AS "s14",
    CAST(0.0e0 AS DOUBLE) AS "s15",
    CAST(0.0e0 AS DOUBLE) AS "s16",
    CAST(0.0e0 AS DOUBLE) AS "s17",
    CAST(0.0e0 AS DOUBLE) AS "s18",
    CAST(0.0e0 AS DOUBLE) AS "s19",
    CAST(0.0e0 AS DOUBLE) AS "s20",
    CAST(0.0e0 AS DOUBLE) AS "s21",
    CAST(0.0e0 AS DOUBLE) AS "s22"
  UNION ALL
  SELECT
    'faults' AS "part",
    '' AS "level",
    "fa_c0" AS "arm",
    0 AS "place",
    0 AS "grp",
    CAST(SUM("fa_bad") AS BIGINT) AS "n",
    COALESCE(SUM(CASE WHEN "fa_q0" = 0 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s0",
    COALESCE(SUM(CASE WHEN "fa_q0" = 1 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s1",
    COALESCE(SUM(CASE WHEN "fa_q1" = 2 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s2",
    COALESCE(SUM(CASE WHEN "fa_q1" = 3 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s3",
    COALESCE(SUM(CASE WHEN "fa_q1" = 4 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s4",
    COALESCE(SUM(CASE WHEN "fa_q1" = 5 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s5",
    COALESCE(SUM(CASE WHEN "fa_q1" = 6 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s6",
    COALESCE(SUM(CASE WHEN "fa_q2" = 7 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s7",
    COALESCE(SUM(CASE WHEN "fa_q2" = 8 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s8",
    COALESCE(SUM(CASE WHEN "fa_q2" = 9 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s9",
    COALESCE(SUM(CASE WHEN "fa_q2" = 10 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s10",
    COALESCE(SUM(CASE WHEN "fa_q2" = 11 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s11",
    COALESCE(SUM(CASE WHEN "fa_q3" = 12 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s12",
    COALESCE(SUM(CASE WHEN "fa_q3" = 13 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s13",
    COALESCE(SUM(CASE WHEN "fa_q3" = 14 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s14",
    COALESCE(SUM(CASE WHEN "fa_q4" = 15 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s15",
    COALESCE(SUM(CASE WHEN "fa_q4" = 16 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s16",
    COALESCE(SUM(CASE WHEN "fa_q4" = 17 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s17",
    COALESCE(SUM(CASE WHEN "fa_q4" = 18 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s18",
    COALESCE(SUM(CASE WHEN "fa_q4" = 19 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s19",
    COALESCE(SUM(CASE WHEN "fa_q5" = 20 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s20",
    COALESCE(SUM(CASE WHEN "fa_q6" = 21 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s21",
    COALESCE(SUM(CASE WHEN "fa_q6" = 22 THEN 1.0e0 ELSE 0.0e0 END), 0.0e0) AS "s22"
  FROM foldaway_judged
  WHERE
    "fa_q0" >= 0
    OR "fa_q1" >= 0
    OR "fa_q2" >= 0
    OR "fa_q3" >= 0
    OR "fa_q4" >= 0
    OR "fa_q5" >= 0
    OR "fa_q6" >= 0
  GROUP BY
    "fa_c0"
  UNION ALL
  SELECT
    'units' AS "part",
    '' AS "level",
    0 AS "arm",
    0 AS "place",
    0 AS "grp",
    CAST(COUNT(DISTINCT "fa_unit") AS BIGINT) AS "n",
    0.0e0 AS "s0",
    0.0e0 AS "s1",
    0.0e0 AS "s2",
    0.0e0 AS "s3",
    0.0e0 AS "s4",
    0.0e0 AS "s5",
    0.0e0 AS "s6",
    0.0e0 AS "s7",
    0.0e0 AS "s8",
    0.0e0 AS "s9",
    0.0e0 AS "s10",
    0.0e0 AS "s11",
    0.0e0 AS "s12",
    0.0e0 AS "s13",
    0.0e0 AS "s14",
    0.0e0 AS "s15",
    0.0e0 AS "s16",
    0.0e0 AS "s17",
    0.0e0 AS "s18",
    0.0e0 AS "s19",
    0.0e0 AS "s20",
    0.0e0 AS "s21",
    0.0e0 AS "s22"
  FROM foldaway_good
  UNION ALL
  SELECT
    'centers' AS "part",
    '' AS "level",
    "fa_of" AS "arm",
    0 AS "place",
    0 AS "grp",
    CAST(0 AS BIGINT) AS "n",
    COALESCE("fa_m0", 0.0e0) AS "s0",
    COALESCE("fa_m1", 0.0e0) AS "s1",
    COALESCE("fa_m2", 0.0e0) AS "s2",
    COALESCE("fa_m3", 0.0e0) AS "s3",
    COALESCE("fa_m4", 0.0e0) AS "s4",
    COALESCE("fa_m5", 0.0e0) AS "s5",
    0.0e0 AS "s6",
    0.0e0 AS "s7",
    0.0e0 AS "s8",
    0.0e0 AS "s9",
    0.0e0 AS "s10",
    0.0e0 AS "s11",
    0.0e0 AS "s12",
    0.0e0 AS "s13",
    0.0e0 AS "s14",
    0.0e0 AS "s15",
    0.0e0 AS "s16",
    0.0e0 AS "s17",
    0.0e0 AS "s18",
    0.0e0 AS "s19",
    0.0e0 AS "s20",
    0.0e0 AS "s21",
    0.0e0 AS "s22"
  FROM foldaway_centers
  UNION ALL
  SELECT
    'sums 0 of 0' AS "part",
    '' AS "level",
    "fa_arm_key" AS "arm",
    0 AS "place",
    "fa_grp_key" AS "grp",
    CAST("fa_n" AS BIGINT) AS "n",
    COALESCE("fa_s0", 0.0e0) AS "s0",
    COALESCE("fa_s1", 0.0e0) AS "s1",
    COALESCE("fa_s2", 0.0e0) AS "s2",
    COALESCE("fa_s3", 0.0e0) AS "s3",
    COALESCE("fa_s4", 0.0e0) AS "s4",
    COALESCE("fa_s5", 0.0e0) AS "s5",
    COALESCE("fa_s6", 0.0e0) AS "s6",
    COALESCE("fa_s7", 0.0e0) AS "s7",
    COALESCE("fa_s8", 0.0e0) AS "s8",
    0.0e0 AS "s9",
    0.0e0 AS "s10",
    0.0e0 AS "s11",
    0.0e0 AS "s12",
    0.0e0 AS "s13",
    0.0e0 AS "s14",
    0.0e0 AS "s15",
    0.0e0 AS "s16",
    0.0e0 AS "s17",
    0.0e0 AS "s18",
    0.0e0 AS "s19",
    0.0e0 AS "s20",
    0.0e0 AS "s21",
    0.0e0 AS "s22"
  FROM foldaway_cells_0
  UNION ALL
  SELECT
    'sums 0 of 0' AS "part",
    '' AS "level",
    "fa_arm_key" AS "arm",
    0 AS "place",
    -1 AS "grp",
    CAST(SUM("fa_n") AS BIGINT) AS "n",
    COALESCE(SUM("fa_s9"), 0.0e0) AS "s0",
    COALESCE(SUM("fa_s10"), 0.0e0) AS "s1",
    COALESCE(SUM("fa_s11"), 0.0e0) AS "s2",
    COALESCE(SUM("fa_s12"), 0.0e0) AS "s3",
    COALESCE(SUM("fa_s13"), 0.0e0) AS "s4",
    COALESCE(SUM("fa_s14"), 0.0e0) AS "s5",
    COALESCE(SUM("fa_s15"), 0.0e0) AS "s6",
    COALESCE(SUM("fa_s16"), 0.0e0) AS "s7",
    COALESCE(SUM("fa_s17"), 0.0e0) AS "s8",
    COALESCE(SUM("fa_s18"), 0.0e0) AS "s9",
    COALESCE(SUM("fa_s19"), 0.0e0) AS "s10",
    COALESCE(SUM("fa_s20"), 0.0e0) AS "s11",
    0.0e0 AS "s12",
    0.0e0 AS "s13",
    0.0e0 AS "s14",
    0.0e0 AS "s15",
    0.0e0 AS "s16",
    0.0e0 AS "s17",
    0.0e0 AS "s18",
    0.0e0 AS "s19",
    0.0e0 AS "s20",
    0.0e0 AS "s21",
    0.0e0 AS "s22"
  FROM foldaway_cells_0
  GROUP BY
    "fa_arm_key"
  UNION ALL
  SELECT
    'bins 0 of 0' AS "part",
    '' AS "level",
    "fa_arm_key" AS "arm",
    "fa_place_key" AS "place",
    "fa_grp_key" AS "grp",
    CAST("fa_n" AS BIGINT) AS "n",
    0.0e0 AS "s0",
    0.0e0 AS "s1",
    0.0e0 AS "s2",
    0.0e0 AS "s3",
    0.0e0 AS "s4",
    0.0e0 AS "s5",
    0.0e0 AS "s6",
    0.0e0 AS "s7",
    0.0e0 AS "s8",
    0.0e0 AS "s9",
    0.0e0 AS "s10",
    0.0e0 AS "s11",
    0.0e0 AS "s12",
    0.0e0 AS "s13",
    0.0e0 AS "s14",
    0.0e0 AS "s15",
    0.0e0 AS "s16",
    0.0e0 AS "s17",
    0.0e0 AS "s18",
    0.0e0 AS "s19",
    0.0e0 AS "s20",
    0.0e0 AS "s21",
    0.0e0 AS "s22"
  FROM foldaway_cells_1
  UNION ALL
  SELECT
    'sums 0 of 1' AS "part",
    CAST("fa_level_key" AS VARCHAR) AS "level",
    "fa_arm_key" AS "arm",
    0 AS "place",
    "fa_grp_key" AS "grp",
    CAST("fa_n" AS BIGINT) AS "n",
    COALESCE("fa_s0", 0.0e0) AS "s0",
    COALESCE("fa_s1", 0.0e0) AS "s1",
    COALESCE("fa_s2", 0.0e0) AS "s2",
    COALESCE("fa_s3", 0.0e0) AS "s3",
    COALESCE("fa_s4", 0.0e0) AS "s4",
    COALESCE("fa_s5", 0.0e0) AS "s5",
    COALESCE("fa_s6", 0.0e0) AS "s6",
    COALESCE("fa_s7", 0.0e0) AS "s7",
    COALESCE("fa_s8", 0.0e0) AS "s8",
    0.0e0 AS "s9",
    0.0e0 AS "s10",
    0.0e0 AS "s11",
    0.0e0 AS "s12",
    0.0e0 AS "s13",
    0.0e0 AS "s14",
    0.0e0 AS "s15",
    0.0e0 AS "s16",
    0.0e0 AS "s17",
    0.0e0 AS "s18",
    0.0e0 AS "s19",
    0.0e0 AS "s20",
    0.0e0 AS "s21",
    0.0e0 AS "s22"
  FROM foldaway_cells_2
  UNION ALL
  SELECT
    'sums 0 of 1' AS "part",
    CAST("fa_level_key" AS VARCHAR) AS "level",
    "fa_arm_key" AS "arm",
    0 AS "place",
    -1 AS "grp",
    CAST(SUM("fa_n") AS BIGINT) AS "n",
    COALESCE(SUM("fa_s9"), 0.0e0) AS "s0",
    COALESCE(SUM("fa_s10"), 0.0e0) AS "s1",
    COALESCE(SUM("fa_s11"), 0.0e0) AS "s2",
    COALESCE(SUM("fa_s12"), 0.0e0) AS "s3",
    COALESCE(SUM("fa_s13"), 0.0e0) AS "s4",
    COALESCE(SUM("fa_s14"), 0.0e0) AS "s5",
    COALESCE(SUM("fa_s15"), 0.0e0) AS "s6",
    COALESCE(SUM("fa_s16"), 0.0e0) AS "s7",
    COALESCE(SUM("fa_s17"), 0.0e0) AS "s8",
    COALESCE(SUM("fa_s18"), 0.0e0) AS "s9",
    COALESCE(SUM("fa_s19"), 0.0e0) AS "s10",
    COALESCE(SUM("fa_s20"), 0.0e0) AS "s11",
    0.0e0 AS "s12",
    0.0e0 AS "s13",
    0.0e0 AS "s14",
    0.0e0 AS "s15",
    0.0e0 AS "s16",
    0.0e0 AS "s17",
    0.0e0 AS "s18",
    0.0e0 AS "s19",
    0.0e0 AS "s20",
    0.0e0 AS "s21",
    0.0e0 AS "s22"
  FROM foldaway_cells_2
  GROUP BY
    "fa_arm_key",
    "fa_level_key"
  UNION ALL
  SELECT
    'bins 0 of 1' AS "part",
    CAST("fa_level_key" AS VARCHAR) AS "level",
    "fa_arm_key" AS "arm",
    "fa_place_key" AS "place",
    "fa_grp_key" AS "grp",
    CAST("fa_n" AS BIGINT) AS "n",
    0.0e0 AS "s0",
    0.0e0 AS "s1",
    0.0e0 AS "s2",
    0.0e0 AS "s3",
    0.0e0 AS "s4",
    0.0e0 AS "s5",
    0.0e0 AS "s6",
    0.0e0 AS "s7",
    0.0e0 AS "s8",
    0.0e0 AS "s9",
    0.0e0 AS "s10",
    0.0e0 AS "s11",
    0.0e0 AS "s12",
    0.0e0 AS "s13",
    0.0e0 AS "s14",
    0.0e0 AS "s15",
    0.0e0 AS "s16",
    0.0e0 AS "s17",
    0.0e0 AS "s18",
    0.0e0 AS "s19",
    0.0e0 AS "s20",
    0.0e0 AS "s21",
    0.0e0 AS "s22"
  FROM foldaway_cells_3
)
SELECT
  "part",
  "level",
  "arm",
  "place",
  "grp",
  "n",
  "s0",
  "s1",
  "s2",
  "s3",
  "s4",
  "s5",
  "s6",
  "s7",
  "s8",
  "s9",
  "s10",
  "s11",
  "s12",
  "s13",
  "s14",
  "s15",
  "s16",
  "s17",
  "s18",
  "s19",
  "s20",
  "s21",
  "s22",
  "n" + "s0" + "s1" + "s2" + "s3" + "s4" + "s5" + "s6" + "s7" + "s8" + "s9" + "s10" + "s11" + "s12" + "s13" + "s14" + "s15" + "s16" + "s17" + "s18" + "s19" + "s20" + "s21" + "s22" AS "total",
  COUNT(*) OVER () AS "lines"
FROM foldaway_lines
